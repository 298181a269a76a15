"""Producers: what may be pushed, what flushing means, what futures say."""

from __future__ import annotations

import subprocess
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from diaspora_stream.api import AdaptiveBatchSize, Driver, Exception as MofkaException, Ordering, ThreadPool, TopicHandle


def test_what_a_producer_tells(dialect, topic: TopicHandle) -> None:
    pool = topic.driver.default_thread_pool
    producer = topic.producer("my_producer", batch_size=32, max_num_batches=4, thread_pool=pool,
                              ordering=Ordering.Loose, options={})
    assert producer.name == "my_producer"
    assert producer.topic == topic and producer.thread_pool == pool
    # A property in one dialect, a method in another.
    assert producer.batch_size == 32 and producer.batch_size() == 32
    assert producer.max_num_batches == 4
    assert topic.producer().name == ""


def test_events_get_their_ids_in_order(dialect, topic: TopicHandle) -> None:
    producer = dialect.producer(topic)
    assert [dialect.wait(producer.push({"i": i})) for i in range(10)] == list(range(10))
    dialect.flush(producer)
    assert producer.push({"i": 10}).wait(timeout_ms=60_000) == 10


@pytest.mark.parametrize("ordering", [Ordering.Strict, Ordering.Loose], ids=["strict", "loose"])
@pytest.mark.parametrize("batch", [AdaptiveBatchSize, 10], ids=["adaptive", "10"])
@pytest.mark.parametrize("threads", [0, 1, 2])
@pytest.mark.parametrize("with_data", [False, True], ids=["metadata", "data"])
def test_a_hundred_events(dialect, driver: Driver, name: str, threads: int, batch: int, ordering: Ordering,
                          with_data: bool) -> None:
    topic = dialect.topic(driver, name)
    producer = dialect.producer(topic, batch_size=batch, threads=threads, ordering=ordering)
    futures = [producer.push({"i": i}, f"data of {i}".encode() if with_data else b"") for i in range(100)]
    dialect.flush(producer)
    assert all(future.completed for future in futures)
    assert sorted(dialect.wait(future) for future in futures) == list(range(100))


def test_waiting_sends_a_batch_that_is_not_full(dialect, topic: TopicHandle) -> None:
    producer = dialect.producer(topic, batch_size=10)
    assert dialect.wait(producer.push({})) == 0


def test_a_full_batch_needs_no_flush(dialect, topic: TopicHandle) -> None:
    producer = dialect.producer(topic, batch_size=2)
    first, _ = producer.push({}), producer.push({})
    consumer = dialect.consumer(topic, "c")
    assert len(dialect.take(consumer, 2)) == 2
    assert dialect.wait(first) == 0


@pytest.mark.parametrize(
    "metadata, read",
    [
        ({"a": 1, "b": [True, None, 1.5], "c": {"d": "e"}}, None),
        ('{"a": 1}', {"a": 1}),
        ('"a text"', "a text"),
        ([1, (2, 3)], [1, [2, 3]]),
        ({1: 2, "nested": {3: [{4: 5}]}}, {"1": 2, "nested": {"3": [{"4": 5}]}}),
        ({"n": np.float64(0.5), "m": np.int32(3)}, {"n": 0.5, "m": 3}),
        (17, 17),
        # As Mofka's own binding has it.
        ({"a": b"\x89PNG\x00", "b": [{"c": b""}]}, {"a": "iVBORwA=", "b": [{"c": ""}]}),
        ({"loss": float("nan"), "most": [float("inf"), 1.5]}, {"loss": None, "most": [None, 1.5]}),
    ],
)
def test_metadata(dialect, driver: Driver, name: str, metadata: Any, read: Any) -> None:
    topic = dialect.topic(driver, name)
    producer = dialect.producer(topic)
    dialect.wait(producer.push(metadata))
    event = dialect.wait(dialect.consumer(topic, "c").pull())
    assert dialect.metadata(event) == (metadata if read is None else read)


@pytest.mark.parametrize("metadata", ["no JSON", '{"a": ', {"a": {1, 2}}, {"a": object()}])
def test_metadata_that_is_no_json_is_refused_by_push(dialect, topic: TopicHandle, metadata: Any) -> None:
    with pytest.raises(MofkaException):
        dialect.producer(topic).push(metadata)


def test_data(dialect, topic: TopicHandle) -> None:
    array = np.arange(6, dtype=np.int16).reshape(2, 3)
    pushed: list[tuple[Any, bytes]] = [
        (b"bytes", b"bytes"),
        (bytearray(b"array"), b"array"),
        (memoryview(b"a view")[2:], b"view"),
        ([b"several ", bytearray(b"pieces")], b"several pieces"),
        ([], b""),
        (array, array.tobytes()),
        # Fortran's order is contiguous, too: the bytes as they lie in memory.
        (np.asfortranarray(array), array.tobytes("F")),
        (bytearray(1), b"\0"),
        (bytes(), b""),
    ]
    producer = dialect.producer(topic)
    for data, _ in pushed:
        producer.push({}, data)
    producer.push(metadata={}, data=b"by name")
    dialect.flush(producer)
    events = dialect.take(dialect.consumer(topic, "c"), len(pushed) + 1)
    assert [b"".join(event.data) for event in events] == [data for _, data in pushed] + [b"by name"]
    assert all(isinstance(event.data, list) for event in events)


@pytest.mark.parametrize("pieces", [False, True], ids=["one", "list"])
def test_a_buffer_that_is_not_contiguous_is_refused(dialect, topic: TopicHandle, pieces: bool) -> None:
    every_other = np.zeros((4, 4))[:, ::2]
    with pytest.raises(MofkaException, match="contiguous"):
        dialect.producer(topic).push({}, [every_other] if pieces else every_other)


def test_large_data_is_not_copied_and_free_after_the_flush(dialect, topic: TopicHandle) -> None:
    data = bytearray(b"a" * 300_000)
    producer = dialect.producer(topic)
    producer.push({}, data)
    dialect.flush(producer)
    data[:] = b"b" * len(data)
    event = dialect.wait(dialect.consumer(topic, "c").pull())
    assert event.data[0] == b"a" * len(data)


def test_flush_waits_or_returns_a_future(dialect, topic: TopicHandle) -> None:
    producer = dialect.producer(topic, batch_size=1000)
    futures = [producer.push({"i": i}) for i in range(10)]
    flushed = producer.flush()
    if dialect.name != "current":
        assert all(future.completed for future in futures)
    # What one dialect's programs do with it works in the others as well.
    assert flushed.wait(timeout_ms=60_000) is True and flushed.wait(timeout_ms=0) is True
    assert flushed.completed and all(future.completed for future in futures)


def test_flushing_what_is_closed_raises_what_programs_catch(dialect, topic: TopicHandle) -> None:
    producer = dialect.producer(topic)
    producer.push({})
    producer.close()
    for flush in (producer.flush, producer.flush_async):
        with pytest.raises(MofkaException, match="closed"):
            flush()


def test_a_flush_does_not_wait_for_what_comes_later(current: Driver, name: str, dialect) -> None:
    topic = dialect.topic(current, name)
    producer = topic.producer(batch_size=1000)
    producer.push({})
    flushed = producer.flush()
    producer.push({})
    assert flushed.wait(timeout_ms=60_000) is True


def test_the_partition_asked_for_counts_modulo_their_number(dialect, driver: Driver, name: str, storage: str) -> None:
    topic = dialect.topic(driver, name, storage, partitions=3)
    producer = dialect.producer(topic)
    for partition in (2, 5, 0, 2):
        producer.push({}, partition=partition)
    dialect.flush(producer)
    with pytest.raises(MofkaException):
        producer.push({}, partition=-1)
    consumer = dialect.consumer(topic, "c", targets=[2])
    events = dialect.take(consumer, 3)
    assert [event.event_id for event in events] == [0, 1, 2]
    assert all(event.partition["provider_id"] == 2 for event in events)
    assert events[0].partition["uuid"] == topic.partitions[2]["uuid"]


def test_events_go_round_the_partitions(dialect, driver: Driver, name: str) -> None:
    topic = dialect.topic(driver, name, partitions=4)
    producer = dialect.producer(topic)
    for i in range(12):
        producer.push({"i": i})
    dialect.flush(producer)
    for target in range(4):
        events = dialect.take(dialect.consumer(topic, "c", targets=[target]), 3)
        assert [dialect.metadata(event)["i"] for event in events] == [target, target + 4, target + 8]


def test_producers_of_one_name_are_several(dialect, topic: TopicHandle) -> None:
    producers = [dialect.producer(topic, "p") for _ in range(3)]
    for i in range(9):
        producers[i % 3].push({"i": i})
    for producer in producers:
        dialect.flush(producer)
    assert len(dialect.take(dialect.consumer(topic, "c"), 9)) == 9


def test_a_producer_with_an_identity_fences_its_predecessor(shared_server, name: str, dialect) -> None:
    driver = dialect.driver(shared_server)
    topic = dialect.topic(driver, name)
    first = topic.producer(options={"identity": "acquisition"})
    first.push({}).wait(60_000)
    second = topic.producer(options={"identity": "acquisition"})
    second.push({}).wait(60_000)
    with pytest.raises(MofkaException):
        first.push({}).wait(60_000)
    # Closing tells once more of what was not stored.
    with pytest.raises(MofkaException, match="fenced"):
        driver.close()


def test_a_topic_without_partitions_is_waited_for(dialect, driver: Driver, name: str) -> None:
    driver.create_topic(name)
    topic = driver.open_topic(name)
    producer = topic.producer(options={"partition_wait": 60.0})
    consumer = dialect.consumer(topic, "c")
    assert consumer.pull().wait(timeout_ms=10) is None
    ids: list[int] = []
    pushing = threading.Thread(target=lambda: ids.append(dialect.wait(producer.push({"a": 1}))))
    pushing.start()
    driver.add_memory_partition(name, 0)
    pushing.join(60)
    assert ids == [0]
    assert dialect.metadata(dialect.wait(consumer.pull())) == {"a": 1}


def test_waiting_for_a_partition_ends(driver: Driver, name: str) -> None:
    driver.create_topic(name)
    with pytest.raises(MofkaException, match="no partitions"):
        driver.open_topic(name).producer(options={"partition_wait": 0.05}).push({})


def test_options_that_mean_nothing_here_are_accepted(dialect, topic: TopicHandle) -> None:
    producer = dialect.producer(topic, options={"ack_early": True, "write_cache": {"num_buffers": 4}})
    for i in range(100):
        producer.push({"i": i}, b"x" * i)
    dialect.flush(producer)
    events = dialect.take(dialect.consumer(topic, "c", options={"write_cache": True}), 100)
    assert [(dialect.metadata(e)["i"], len(e.data[0])) for e in events] == [(i, i) for i in range(100)]


# Nothing pushed is forgotten.


def test_letting_go_of_a_producer_sends_what_it_has(dialect, topic: TopicHandle) -> None:
    producer = dialect.producer(topic, batch_size=1000)
    futures = [producer.push({"i": i}) for i in range(10)]
    del producer
    assert len(dialect.take(dialect.consumer(topic, "c"), 10)) == 10
    assert futures[9].completed or dialect.wait(futures[9]) == 9


@pytest.mark.parametrize("batch", ["AdaptiveBatchSize", "1000"])
def test_the_end_of_the_program_drains(shared_server, dialect, driver: Driver, name: str, run_script, batch: str) -> None:
    topic = dialect.topic(driver, name)
    code = f"""
import sys
from mochi.mofka.client import *
driver = MofkaDriver(group_file=sys.argv[1])
producer = driver.open_topic(sys.argv[2]).producer(batch_size={batch})
for i in range(500):
    producer.push({{"i": i}}, b"x" * 1000)
producer.flush()
for i in range(500):
    producer.push({{"i": 500 + i}})
"""
    done = run_script(code, shared_server.group_file, name)
    assert (done.returncode, done.stderr) == (0, "")
    events = dialect.take(dialect.consumer(topic, "c"), 1000)
    assert [dialect.metadata(event)["i"] for event in events] == list(range(1000))


def test_closing_the_driver_drains(shared_server, dialect, name: str) -> None:
    driver = dialect.driver(shared_server)
    topic = dialect.topic(driver, name)
    producer = dialect.producer(topic, batch_size=1000)
    future = producer.push({})
    driver.close()
    assert future.wait(timeout_ms=0) == 0
    with pytest.raises(MofkaException):
        producer.push({})


def test_a_block_closes_its_producer(dialect, topic: TopicHandle) -> None:
    with dialect.producer(topic, batch_size=1000) as producer:
        future = producer.push({})
    assert future.completed


def test_a_pool_of_the_program(tmp_path: Path) -> None:
    """Pools run what they are given: inline with no threads, else on theirs."""
    here = threading.get_ident()
    assert ThreadPool(0).run(threading.get_ident).result() == here
    pool = ThreadPool(2)
    done = [pool.run(lambda i=i: (i, threading.get_ident())) for i in range(100)]
    assert [future.result()[0] for future in done] == list(range(100))
    assert here not in {future.result()[1] for future in done}
    failing = ThreadPool(0).run(lambda: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        failing.result()


def test_metadata_of_several_megabytes(dialect, topic: TopicHandle) -> None:
    producer = dialect.producer(topic)
    text = "x" * (3 << 20)
    dialect.wait(producer.push({"text": text}))
    assert dialect.metadata(dialect.wait(dialect.consumer(topic, "c").pull())) == {"text": text}
