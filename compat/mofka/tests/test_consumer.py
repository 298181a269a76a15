"""Consumers: what is delivered, in which order, to which pull, how often."""

from __future__ import annotations

import gc
import threading
import time
from typing import Any

import pytest

from diaspora_stream.api import (
    ByteArrayAllocator,
    Driver,
    Exception as MofkaException,
    FullDataSelector,
    StopEventProcessor,
    ThreadPool,
    TopicHandle,
)


def push(dialect, topic: TopicHandle, count: int, first: int = 0) -> None:
    """Events with their numbers, with data where the number is even."""
    producer = dialect.producer(topic)
    for i in range(first, first + count):
        producer.push({"i": i, "value": f"event_{i}"}, f"data of {i}".encode() if i % 2 == 0 else b"")
    dialect.flush(producer)


def test_what_a_consumer_tells(dialect, topic: TopicHandle) -> None:
    pool = ThreadPool(1)
    consumer = dialect.consumer(topic, "my_consumer", FullDataSelector, ByteArrayAllocator,
                                batch_size=7, thread_pool=pool, max_num_batches=3)
    assert consumer.name == "my_consumer" and consumer.topic == topic
    assert consumer.thread_pool is pool
    assert consumer.batch_size == 7 and consumer.batch_size() == 7 and consumer.max_num_batches == 3
    assert consumer.data_selector is FullDataSelector and consumer.data_allocator is ByteArrayAllocator
    assert consumer.data_broker is ByteArrayAllocator
    other = topic.consumer("other")
    assert other.batch_size > 0 and other.max_num_batches > 0 and other.thread_pool is not None


def test_events_come_in_order_with_what_belongs_to_them(dialect, topic: TopicHandle) -> None:
    push(dialect, topic, 100)
    consumer = dialect.consumer(topic, "c")
    for i in range(100):
        event = dialect.wait(consumer.pull())
        assert event.event_id == i
        assert dialect.metadata(event) == {"i": i, "value": f"event_{i}"}
        if i % 5 == 0:
            event.acknowledge()
    for _ in range(10):
        assert consumer.pull().wait(timeout_ms=1) is None


def test_iterating(dialect, topic: TopicHandle) -> None:
    push(dialect, topic, 10)
    topic.mark_as_complete()
    seen = []
    for event in dialect.consumer(topic, "c"):
        seen.append((event.event_id, dialect.metadata(event)["i"]))
        event.acknowledge()
    assert seen == [(i, i) for i in range(10)]


def test_iterating_ends_when_nothing_comes(dialect, topic: TopicHandle, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("thalweg_mofka.consumer._ITERATION_MS", 50)
    push(dialect, topic, 3)
    assert len(list(dialect.consumer(topic, "c"))) == 3
    assert list(dialect.consumer(topic, "d", options={"start_from": "latest"})) == []


def test_the_end_of_a_topic(dialect, driver: Driver, name: str) -> None:
    topic = dialect.topic(driver, name, partitions=2)
    push(dialect, topic, 4)
    topic.mark_as_complete()
    consumer = dialect.consumer(topic, "c")
    events = dialect.take(consumer, 5)
    assert [event.event_id is None for event in events] == [False] * 4 + [True]
    with pytest.raises(MofkaException):
        events[-1].acknowledge()
    assert events[-1].data == [b""] and events[-1].partition == {}


# Data.


def test_all_data_without_a_selector(dialect, topic: TopicHandle) -> None:
    push(dialect, topic, 4)
    events = dialect.take(dialect.consumer(topic, "c"), 4)
    assert all(isinstance(event.data, list) and len(event.data) == 1 for event in events)
    assert all(isinstance(event.data[0], memoryview) for event in events)
    assert [bytes(event.data[0]) for event in events] == [b"data of 0", b"", b"data of 2", b""]


def test_a_selector_and_an_allocator(dialect, topic: TopicHandle) -> None:
    push(dialect, topic, 4)
    given: list[Any] = []

    def select(metadata: Any, descriptor: Any) -> Any:
        # Selectors get parsed metadata in every dialect.
        return descriptor if metadata["i"] != 2 else None

    def allocate(metadata: Any, descriptor: Any) -> list[bytearray]:
        given.append(bytearray(descriptor.size))
        return [given[-1]]

    events = dialect.take(dialect.consumer(topic, "c", select, allocate), 4)
    assert [event.data for event in events] == [
        [bytearray(b"data of 0")], [bytearray()], [bytearray()], [bytearray()],
    ]
    assert events[0].data[0] is given[0], "the data lies in the memory that the allocator gave"


def test_the_selector_and_allocator_of_the_library(dialect, topic: TopicHandle) -> None:
    push(dialect, topic, 1)
    event = dialect.wait(dialect.consumer(topic, "c", FullDataSelector, ByteArrayAllocator).pull())
    assert event.data == [bytearray(b"data of 0")] and isinstance(event.data[0], bytearray)


def test_an_allocator_that_gives_pieces(dialect, topic: TopicHandle) -> None:
    push(dialect, topic, 1)
    sizes = (4, 0, 3, 2)
    consumer = dialect.consumer(topic, "c", FullDataSelector, lambda m, d: [bytearray(size) for size in sizes])
    assert dialect.wait(consumer.pull()).data == [b"data", b"", b" of", b" 0"]


@pytest.mark.parametrize("size", [0, 8, 10])
def test_an_allocator_that_gives_too_much_or_too_little(dialect, topic: TopicHandle, size: int) -> None:
    push(dialect, topic, 1)
    consumer = dialect.consumer(topic, "c", FullDataSelector, lambda m, d: [bytearray(size)])
    with pytest.raises(MofkaException, match=f"{size} bytes.*9 bytes"):
        dialect.wait(consumer.pull())


def test_what_a_selector_raises_is_told_and_the_event_stays(dialect, topic: TopicHandle) -> None:
    push(dialect, topic, 1)
    answers: list[Any] = [KeyError("angle"), "no descriptor"]

    def select(metadata: Any, descriptor: Any) -> Any:
        if not answers:
            return descriptor
        answer = answers.pop(0)
        if isinstance(answer, BaseException):
            raise answer
        return answer

    consumer = dialect.consumer(topic, "c", select, ByteArrayAllocator)
    with pytest.raises(KeyError):
        dialect.wait(consumer.pull())
    with pytest.raises(MofkaException, match="DataDescriptor"):
        dialect.wait(consumer.pull())
    assert dialect.wait(consumer.pull()).data == [b"data of 0"]


def test_what_an_allocator_raises_is_told_and_the_event_stays(dialect, topic: TopicHandle) -> None:
    # The second event has no data, so that there is nothing to allocate.
    push(dialect, topic, 2)
    asked: list[int] = []

    def allocate(metadata: Any, descriptor: Any) -> list[bytearray]:
        asked.append(metadata["i"])
        if asked.count(metadata["i"]) == 1:
            raise ZeroDivisionError
        return [bytearray(descriptor.size)]

    consumer = dialect.consumer(topic, "c", FullDataSelector, allocate)
    for i, data in enumerate((b"data of 0", b"")):
        with pytest.raises(ZeroDivisionError):
            dialect.wait(consumer.pull())
        event = dialect.wait(consumer.pull())
        assert (event.event_id, event.data) == (i, [data])


def test_polling_for_long_piles_nothing_up(dialect, topic: TopicHandle) -> None:
    consumer = dialect.consumer(topic, "c")
    future = consumer.pull()
    for _ in range(1000):
        assert not future.completed
    assert len(consumer._waiting) <= 1
    push(dialect, topic, 1)
    assert dialect.wait(future).event_id == 0


# Pulls and waits.


def test_waiting_for_no_time_looks(dialect, topic: TopicHandle) -> None:
    consumer = dialect.consumer(topic, "c")
    future = consumer.pull()
    assert future.wait(0) is None and future.wait(timeout_ms=0) is None
    assert not future.completed and not future.completed()
    push(dialect, topic, 1)
    assert dialect.wait(future).event_id == 0
    assert future.completed and future.completed()


def test_waiting_twice_gives_the_same_event(dialect, topic: TopicHandle) -> None:
    push(dialect, topic, 2)
    future = dialect.consumer(topic, "c").pull()
    event = dialect.wait(future)
    assert dialect.wait(future) is event and future.wait(0) is event
    pushed = dialect.producer(topic).push({})
    assert dialect.wait(pushed) == dialect.wait(pushed) == 2


@pytest.mark.parametrize("timeout_ms", [2_148, 3_000, 5_000, 2**31, 2**40])
def test_a_long_timeout_is_long(dialect, topic: TopicHandle, timeout_ms: int) -> None:
    consumer = dialect.consumer(topic, "c")
    future = consumer.pull()
    waiting = threading.Event()
    events: list[Any] = []

    def wait() -> None:
        waiting.set()
        events.append(future.wait(timeout_ms=timeout_ms))

    thread = threading.Thread(target=wait)
    thread.start()
    waiting.wait()
    # One that wrapped around would have come back with nothing by now, or soon.
    thread.join(0.02)
    push(dialect, topic, 1)
    thread.join(60)
    assert [event.event_id for event in events] == [0]


def test_a_timeout_is_kept(current: Driver, name: str) -> None:
    current.create_topic(name, options={"num_partitions": 1})
    future = current.open_topic(name).consumer("c").pull()
    begin = time.monotonic()
    assert future.wait(timeout_ms=2_200) is None
    assert time.monotonic() - begin >= 2.1


@pytest.mark.parametrize("timeout_ms", [-1, -1000, None])
def test_a_negative_timeout_waits_for_as_long_as_it_takes(dialect, topic: TopicHandle, timeout_ms: int | None) -> None:
    push(dialect, topic, 1)
    assert dialect.consumer(topic, "c").pull().wait(timeout_ms).event_id == 0


def test_a_pull_that_timed_out_loses_nothing(dialect, topic: TopicHandle) -> None:
    consumer = dialect.consumer(topic, "c")
    forgotten = [consumer.pull() for _ in range(3)]
    assert [future.wait(timeout_ms=1) for future in forgotten] == [None] * 3
    dropped = consumer.pull()
    del dropped
    assert consumer.pull().wait(timeout_ms=1) is None
    push(dialect, topic, 5)
    assert [event.event_id for event in dialect.take(consumer, 5)] == list(range(5))


def test_a_pull_that_timed_out_may_be_waited_for_again(dialect, topic: TopicHandle) -> None:
    consumer = dialect.consumer(topic, "c")
    future = consumer.pull()
    assert future.wait(timeout_ms=1) is None
    push(dialect, topic, 2)
    # It stood back, so that whoever is waited for gets what is there.
    later = consumer.pull()
    assert dialect.wait(later).event_id == 0
    assert dialect.wait(future).event_id == 1


def test_pulls_get_events_in_the_order_of_the_pulls(dialect, topic: TopicHandle) -> None:
    consumer = dialect.consumer(topic, "c")
    futures = [consumer.pull() for _ in range(10)]
    push(dialect, topic, 10)
    waited = {i: dialect.wait(futures[i]).event_id for i in (9, 3, 0, 4, 1, 8, 2, 7, 5, 6)}
    assert waited == {i: i for i in range(10)}


def test_an_event_whose_pull_was_given_up_is_the_next_ones(dialect, topic: TopicHandle) -> None:
    consumer = dialect.consumer(topic, "c")
    futures = [consumer.pull() for _ in range(4)]
    push(dialect, topic, 6)
    assert dialect.wait(futures[3]).event_id == 3
    # Those before it have their events, and go without anybody having seen them.
    assert dialect.wait(futures[1]).event_id == 1
    del futures
    gc.collect()
    assert [event.event_id for event in dialect.take(consumer, 4)] == [0, 2, 4, 5]


def test_threads_share_a_consumer(dialect, topic: TopicHandle) -> None:
    consumer = dialect.consumer(topic, "c")
    seen: list[int] = []

    def pull() -> None:
        for _ in range(50):
            seen.append(dialect.wait(consumer.pull()).event_id)

    threads = [threading.Thread(target=pull) for _ in range(4)]
    for thread in threads:
        thread.start()
    push(dialect, topic, 200)
    for thread in threads:
        thread.join(60)
    assert sorted(seen) == list(range(200))


def test_a_pull_without_an_end_can_be_interrupted(shared_server, dialect, driver: Driver, name: str, run_script) -> None:
    dialect.topic(driver, name)
    code = """
import os, signal, sys, threading
from mochi.mofka.client import MofkaDriver
signal.signal(signal.SIGINT, signal.default_int_handler)
consumer = MofkaDriver(sys.argv[1]).open_topic(sys.argv[2]).consumer("c")
future = consumer.pull()
threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
try:
    future.wait()
except KeyboardInterrupt:
    print("interrupted", future.wait(timeout_ms=1))
"""
    done = run_script(code, shared_server.group_file, name)
    assert done.stdout == "interrupted None\n", done.stderr


# Positions.


def test_a_new_name_begins_at_the_first_event(dialect, topic: TopicHandle) -> None:
    push(dialect, topic, 3)
    for name in ("a", "b"):
        assert [event.event_id for event in dialect.take(dialect.consumer(topic, name), 3)] == [0, 1, 2]


def test_a_known_name_goes_on_behind_what_it_acknowledged(dialect, topic: TopicHandle) -> None:
    push(dialect, topic, 10)
    consumer = dialect.consumer(topic, "c")
    dialect.take(consumer, 4)[-1].acknowledge()
    del consumer
    consumer = dialect.consumer(topic, "c")
    assert dialect.wait(consumer.pull()).event_id == 4
    # Without letting go of the one before, too.
    dialect.take(consumer, 2)[-1].acknowledge()
    assert dialect.wait(dialect.consumer(topic, "c").pull()).event_id == 7


def test_acknowledging_an_earlier_event_takes_nothing_back(dialect, topic: TopicHandle) -> None:
    push(dialect, topic, 10)
    consumer = dialect.consumer(topic, "c")
    events = dialect.take(consumer, 8)
    events[7].acknowledge()
    events[2].acknowledge()
    del consumer, events
    assert dialect.wait(dialect.consumer(topic, "c").pull()).event_id == 8


def test_consumers_of_one_name_each_get_everything(dialect, topic: TopicHandle) -> None:
    push(dialect, topic, 5)
    consumers = [dialect.consumer(topic, "c") for _ in range(3)]
    for consumer in consumers:
        assert [event.event_id for event in dialect.take(consumer, 5)] == list(range(5))


def test_starting_from_the_latest(shared_server, dialect, topic: TopicHandle, monkeypatch) -> None:
    push(dialect, topic, 3)
    consumer = dialect.consumer(topic, "a", options={"start_from": "latest"})
    assert consumer.pull().wait(timeout_ms=50) is None
    with dialect.driver(shared_server, start_from="latest") as driver:
        by_driver = driver.open_topic(topic.name).consumer("b")
        assert by_driver.pull().wait(timeout_ms=50) is None
        monkeypatch.setenv("THALWEG_MOFKA_START_FROM", "latest")
        by_environment = dialect.consumer(topic, "d")
        assert by_environment.pull().wait(timeout_ms=50) is None
        push(dialect, topic, 1, first=3)
        for late in (consumer, by_driver, by_environment):
            assert dialect.wait(late.pull()).event_id == 3
    with pytest.raises(MofkaException, match="yesterday"):
        topic.consumer("e", options={"start_from": "yesterday"})


def test_targets(dialect, driver: Driver, name: str, storage: str) -> None:
    topic = dialect.topic(driver, name, storage, partitions=4)
    push(dialect, topic, 16)
    chosen = dialect.take(dialect.consumer(topic, "c", targets=[1, 3]), 8)
    assert sorted(dialect.metadata(event)["i"] for event in chosen) == [1, 3, 5, 7, 9, 11, 13, 15]
    assert {event.partition["provider_id"] for event in chosen} == {1, 3}
    everything = dialect.take(dialect.consumer(topic, "all", targets=[]), 16)
    assert {event.partition["provider_id"] for event in everything} == {0, 1, 2, 3}
    with pytest.raises(MofkaException):
        dialect.consumer(topic, "d", targets=[4])


def test_consumers_that_are_let_go_of_hold_nothing(dialect, topic: TopicHandle) -> None:
    push(dialect, topic, 1)
    for i in range(100):
        # Without a cycle that only the collector of cycles would find.
        gc.disable()
        consumer = dialect.consumer(topic, f"c{i}", FullDataSelector, ByteArrayAllocator)
        assert dialect.wait(consumer.pull()).event_id == 0
        del consumer
        gc.enable()


# At the same time.


def test_a_consumer_that_follows_its_producer(dialect, topic: TopicHandle) -> None:
    producer = dialect.producer(topic)
    consumer = dialect.consumer(topic, "c")

    def produce() -> None:
        for i in range(50):
            dialect.wait(producer.push({"i": i}))

    thread = threading.Thread(target=produce)
    thread.start()
    assert [dialect.metadata(event)["i"] for event in dialect.take(consumer, 50)] == list(range(50))
    thread.join()


def test_a_slow_consumer_loses_nothing(dialect, topic: TopicHandle) -> None:
    consumer = dialect.consumer(topic, "c")
    push(dialect, topic, 30)
    seen = []
    for _ in range(30):
        event = dialect.wait(consumer.pull())
        time.sleep(0.01)
        event.acknowledge()
        seen.append(event.event_id)
    assert seen == list(range(30))


def test_several_producers_into_one_consumer(dialect, topic: TopicHandle) -> None:
    def produce(which: int) -> None:
        producer = dialect.producer(topic, f"p{which}")
        for i in range(20):
            producer.push({"i": i, "producer": which})
        dialect.flush(producer)

    threads = [threading.Thread(target=produce, args=(which,)) for which in range(3)]
    for thread in threads:
        thread.start()
    seen = [dialect.metadata(event) for event in dialect.take(dialect.consumer(topic, "c"), 60)]
    for thread in threads:
        thread.join()
    for which in range(3):
        assert [event["i"] for event in seen if event["producer"] == which] == list(range(20))


# Processing.


@pytest.mark.parametrize("threads", [0, 2])
def test_processing(dialect, topic: TopicHandle, threads: int) -> None:
    push(dialect, topic, 20)
    seen: list[int] = []
    consumer = dialect.consumer(topic, "c")
    consumer.process(lambda event: seen.append(event.event_id), thread_pool=ThreadPool(threads), max_events=15)
    assert sorted(seen) == list(range(15))
    consumer.process(lambda event: seen.append(event.event_id), timeout_ms=50)
    assert sorted(seen) == list(range(20))


def test_a_processor_that_has_seen_enough_or_fails(dialect, topic: TopicHandle) -> None:
    push(dialect, topic, 20)
    seen: list[int] = []

    def process(event: Any) -> None:
        seen.append(event.event_id)
        if event.event_id == 4:
            raise StopEventProcessor
        if event.event_id == 6:
            raise ZeroDivisionError

    consumer = dialect.consumer(topic, "c")
    consumer.process(process)
    assert seen == list(range(5))
    with pytest.raises(ZeroDivisionError):
        consumer.process(process)


def test_many_that_are_kept_beside_each_other(dialect, topic: TopicHandle) -> None:
    # Programs make a producer and a consumer for each of their runs, of one driver, and keep them.
    kept = []
    for i in range(40):
        producer = dialect.producer(topic)
        consumer = dialect.consumer(topic, f"run-{i}")
        producer.push({"i": i}, b"")
        dialect.flush(producer)
        kept.append((producer, consumer))
    for _, consumer in kept:
        assert [dialect.metadata(dialect.wait(consumer.pull()))["i"] for _ in kept] == list(range(40))
