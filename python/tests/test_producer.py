"""Producers: what can be pushed, what comes back, whose memory it is."""

from __future__ import annotations

import gc
import sys
import threading
import time
import weakref
from datetime import datetime, timezone
from typing import Any

import numpy as np
import pytest

import thalweg


def consumed(topic: thalweg.Topic, count: int) -> list[thalweg.Event]:
    """The first `count` events, and no more."""
    with topic.consumer("reader", start="beginning") as consumer:
        events: list[thalweg.Event] = []
        while len(events) < count:
            pulled = consumer.pull_batch(count - len(events), timeout=60)
            assert pulled, f"{len(events)} of {count} events came"
            events += pulled
        return events


@pytest.mark.parametrize(
    ("metadata", "bytes_"),
    [
        ({"angle": 0.5}, b'{"angle":0.5}'),
        ({}, b"{}"),
        ([1, "é"], '[1,"é"]'.encode()),
        (7, b"7"),
        ('{"as": "it is"}', b'{"as": "it is"}'),
        (b"\xff\x00 raw", b"\xff\x00 raw"),
        (bytearray(b"[1]"), b"[1]"),
        (memoryview(b"[2]"), b"[2]"),
        (None, b""),
        ({"n": np.float32(0.5), "a": np.arange(3)}, b'{"n":0.5,"a":[0,1,2]}'),
    ],
)
def test_metadata_of_every_kind(topic: thalweg.Topic, metadata: Any, bytes_: bytes) -> None:
    with topic.producer() as producer:
        producer.push(metadata)
    [event] = consumed(topic, 1)
    assert event.metadata_bytes == bytes_


def test_metadata_without_a_json_form_is_refused(topic: thalweg.Topic) -> None:
    with topic.producer() as producer:
        with pytest.raises(thalweg.InvalidEvent, match="object") as raised:
            producer.push({"a": object()})
        assert raised.value.__cause__ is not None
        circle: list[Any] = []
        circle.append(circle)
        with pytest.raises(thalweg.InvalidEvent):
            producer.push(circle)
        assert producer.push({"a": 1}).result().offset == 0


def test_the_validator_is_asked_at_push(driver: thalweg.Driver, name: str) -> None:
    schema = {"type": "object", "required": ["angle"]}
    topic = driver.create_topic(name, storage="memory", validator=schema)
    with topic.producer() as producer:
        with pytest.raises(ValueError, match="angle"):
            producer.push({"shape": [1]})
        with pytest.raises(thalweg.InvalidEvent, match="JSON"):
            producer.push("{")
        assert producer.push({"angle": 1}).result().offset == 0


def test_metadata_has_a_limit(driver: thalweg.Driver, name: str) -> None:
    topic = driver.create_topic(name, storage="memory", metadata_bytes_max=10)
    with topic.producer() as producer:
        producer.push({"a": 1234}).result()
        with pytest.raises(thalweg.InvalidEvent, match="10"):
            producer.push({"a": 12345})


def test_ten_megabytes_of_metadata(driver: thalweg.Driver, name: str) -> None:
    topic = driver.create_topic(name, storage="memory", metadata_bytes_max=16 << 20)
    metadata = {"text": "x" * 10_000_000}
    with topic.producer() as producer:
        producer.push(metadata)
    [event] = consumed(topic, 1)
    assert event.metadata == metadata


FRAME = np.arange(600, dtype=np.uint16).reshape(20, 30)


@pytest.mark.parametrize(
    ("data", "bytes_"),
    [
        (None, b""),
        (b"", b""),
        (b"bytes", b"bytes"),
        (bytearray(b"bytearray"), b"bytearray"),
        (memoryview(b"memoryview")[3:], b"oryview"),
        (FRAME, FRAME.tobytes()),
        (FRAME[3:7], FRAME[3:7].tobytes()),
        (FRAME.ravel(), FRAME.tobytes()),
        (np.zeros((0, 5)), b""),
        (np.float64(1.5), np.float64(1.5).tobytes()),
        (np.array(["2026-11-21"], "datetime64[ns]"), np.array(["2026-11-21"], "M8[ns]").tobytes()),
        (np.zeros(3, [("a", "i4"), ("b", "f8")]), bytes(36)),
        ([], b""),
        ([b"one", FRAME, bytearray(b"three")], b"one" + FRAME.tobytes() + b"three"),
        ((b"one", b"", b"two"), b"onetwo"),
        (np.full(100_001, 7, np.uint8), bytes([7]) * 100_001),
        ([np.full(100_001, 7, np.uint8), b"tail"], bytes([7]) * 100_001 + b"tail"),
    ],
)
def test_data_of_every_kind(topic: thalweg.Topic, data: Any, bytes_: bytes) -> None:
    with topic.producer() as producer:
        producer.push({}, data)
    [event] = consumed(topic, 1)
    assert bytes(event.data) == bytes_
    assert event.data_size == len(bytes_)


def test_read_only_data_is_taken(topic: thalweg.Topic) -> None:
    frame = FRAME.copy()
    frame.flags.writeable = False
    with topic.producer() as producer:
        producer.push({}, frame)
    assert np.array_equal(consumed(topic, 1)[0].numpy(FRAME.dtype, FRAME.shape), FRAME)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (FRAME[:, ::2], "contiguous"),
        (np.asfortranarray(FRAME), "contiguous"),
        (memoryview(b"abcdef")[::2], "contiguous"),
        ([b"good", FRAME.T], "contiguous"),
        ("text", "str"),
        (7, "int"),
        ([b"good", "bad"], "str"),
    ],
)
def test_data_that_is_no_block_is_refused(topic: thalweg.Topic, data: Any, reason: str) -> None:
    with topic.producer() as producer:
        with pytest.raises(thalweg.InvalidEvent, match=reason):
            producer.push({}, data)
        assert producer.push({}).result().offset == 0


def test_refused_data_is_let_go(topic: thalweg.Topic) -> None:
    array = bytearray(b"good")
    with topic.producer() as producer:
        with pytest.raises(thalweg.InvalidEvent):
            producer.push({}, [array, 7])
    array.append(1)


def test_key_headers_and_times(topic: thalweg.Topic) -> None:
    moment = datetime(2026, 11, 21, 12, 0, 0, 250, tzinfo=timezone.utc)
    with topic.producer() as producer:
        producer.push({}, key=b"k\x00", headers={"a": b"1", "b": "é"}, time=123)
        producer.push({}, key="", headers=[("a", b"1"), ("a", b"2")], time=moment)
        producer.push({}, key="gone", tombstone=True)
        with pytest.raises(TypeError, match="key|bytes or str"):
            producer.push({}, key=7)
        with pytest.raises(ValueError, match="time zone"):
            producer.push({}, time=datetime(2026, 11, 21))
        with pytest.raises(TypeError, match="nanoseconds"):
            producer.push({}, time="now")
    first, second, third = consumed(topic, 3)
    assert (first.key, first.time, first.tombstone) == (b"k\x00", 123, False)
    assert first.headers == (("a", b"1"), ("b", "é".encode()))
    assert (second.key, second.headers) == (b"", (("a", b"1"), ("a", b"2")))
    assert second.time == int(moment.timestamp()) * 10**9 + 250_000
    assert (third.key, third.time, third.headers, third.tombstone) == (b"gone", None, (), True)
    assert first.append_time > 10**18


def test_a_future_becomes_an_id(topic: thalweg.Topic) -> None:
    with topic.producer() as producer:
        futures = [producer.push({"i": i}) for i in range(10)]
        ids = [future.result(timeout=60) for future in futures]
        assert [(id.partition, id.offset) for id in ids] == [(0, i) for i in range(10)]
        assert all(future.done() for future in futures)
        assert futures[0].exception() is None
        assert sorted(ids, reverse=True)[0] == ids[-1]
        assert len(set(ids) | set(ids)) == 10
        assert str(ids[3]) == f"0/3@{ids[3].incarnation}"


def test_ids_are_pickled() -> None:
    import pickle

    id = thalweg.EventId(1, 2, 3)
    assert pickle.loads(pickle.dumps(id)) == id
    assert id != (1, 2, 3)


def test_callbacks_are_called_once_each(topic: thalweg.Topic) -> None:
    called = threading.Semaphore(0)
    seen: list[thalweg.Future] = []

    def callback(future: thalweg.Future) -> None:
        seen.append(future)
        called.release()

    with topic.producer() as producer:
        future = producer.push({})
        future.add_done_callback(callback)
        assert called.acquire(timeout=60)
        future.add_done_callback(callback)
        assert len(seen) == 2
        assert all(entry is future for entry in seen)


def test_what_a_callback_raises_is_reported(
    topic: thalweg.Topic, monkeypatch: pytest.MonkeyPatch
) -> None:
    reports: list[Any] = []
    reported = threading.Event()
    monkeypatch.setattr(
        sys, "unraisablehook", lambda report: (reports.append(report.exc_value), reported.set())
    )
    with topic.producer() as producer:
        future = producer.push({})
        future.add_done_callback(lambda _: 1 / 0)
        assert reported.wait(60)
    assert isinstance(reports[0], ZeroDivisionError)


def test_push_many_lists(topic: thalweg.Topic) -> None:
    with topic.producer() as producer:
        futures = producer.push_many([{"i": i} for i in range(5000)])
        assert futures[-1].result().offset == 4999
        producer.push_many(["[1]", None], data=[b"a", [b"b", b"c"]])
    events = consumed(topic, 5002)
    assert [event.metadata["i"] for event in events[:5000]] == list(range(5000))
    assert [bytes(event.data) for event in events[5000:]] == [b"a", b"bc"]


def test_push_many_rows_of_an_array(topic: thalweg.Topic) -> None:
    frames = np.arange(3 * 4 * 5, dtype=np.float32).reshape(3, 4, 5)
    with topic.producer() as producer:
        assert len(producer.push_many({"same": True}, data=frames)) == 3
        assert len(producer.push_many(data=frames)) == 3
        assert producer.push_many([], data=frames[:0]) == []
    for index, event in enumerate(consumed(topic, 6)):
        assert np.array_equal(event.numpy(np.float32, (4, 5)), frames[index % 3])


def test_push_many_refuses_what_does_not_fit(topic: thalweg.Topic) -> None:
    with topic.producer() as producer:
        with pytest.raises(thalweg.InvalidArgument, match="2 .* 3"):
            producer.push_many([{}, {}], data=np.zeros((3, 2)))
        with pytest.raises(thalweg.InvalidArgument, match="two or more dimensions"):
            producer.push_many(data=np.zeros(3))
        with pytest.raises(thalweg.InvalidEvent, match="contiguous"):
            producer.push_many(data=np.zeros((3, 2)).T)
        with pytest.raises(TypeError):
            producer.push_many()
        with pytest.raises(thalweg.InvalidEvent):
            producer.push_many([{}, {"a": object()}])
        assert producer.push({}).result().offset == 0


def test_push_many_says_where_it_stopped(driver: thalweg.Driver, name: str) -> None:
    topic = driver.create_topic(name, storage="memory", validator="json")
    with topic.producer() as producer:
        with pytest.raises(thalweg.InvalidEvent) as raised:
            producer.push_many(["1", "2", "{", "4"])
        assert any("event 2 of 4" in note for note in raised.value.__notes__)
    assert len(consumed(topic, 2)) == 2


def test_batches_of_a_number_of_events_wait_for_a_flush(topic: thalweg.Topic) -> None:
    with topic.producer(batch=100) as producer:
        future = producer.push({})
        assert not future.done()
        producer.flush()
        assert future.done()
        # Whoever waits for one gets it.
        assert producer.push({}).result(timeout=60).offset == 1
    with topic.producer(batch=100, linger_ms=1) as producer:
        assert producer.push({}).result(timeout=60).offset == 2


def test_a_flush_that_is_begun_sends_and_does_not_wait(server: Any) -> None:
    with server.connect() as driver:
        topic = driver.create_topic("frames")
        with topic.producer(batch=100) as producer:
            server.pause()
            pushed = [producer.push({"i": i}) for i in range(7)]
            flush = producer.begin_flush()
            later = producer.push({"i": 7})
            assert not flush.done()
            with pytest.raises(thalweg.Timeout):
                flush.result(0.01)
            server.go_on()
            assert flush.result(60) is None and flush.done()
            assert all(future.done() for future in pushed)
            # What comes later is no part of it, and waits for a batch of its own to be full.
            assert not later.done()
            told: list[Any] = []
            flush.add_done_callback(told.append)
            assert told == [flush]
        assert later.done()


def test_a_flush_that_is_begun_with_nothing_pushed_is_done(topic: thalweg.Topic) -> None:
    with topic.producer() as producer:
        assert producer.begin_flush().done()
    with pytest.raises(thalweg.Closed):
        producer.begin_flush()


@pytest.mark.parametrize(
    "options",
    [
        {"batch": 0},
        {"batch": "big"},
        {"batch": True},
        {"at_budget": "panic"},
        {"durability": "eternal"},
        {"linger_ms": -1.0},
    ],
)
def test_options_that_make_no_sense_are_refused(
    topic: thalweg.Topic, options: dict[str, Any]
) -> None:
    with pytest.raises(ValueError):
        topic.producer(**options)


def test_durability_is_raised_and_not_lowered(driver: thalweg.Driver, name: str) -> None:
    topic = driver.create_topic(name, storage="disk", durability="written")
    with topic.producer(durability="synced") as producer:
        producer.push({}).result()
    with pytest.raises(thalweg.Error), topic.producer(durability="memory") as producer:
        producer.push({}).result()


def test_a_closed_producer_says_so(topic: thalweg.Topic) -> None:
    with topic.producer() as producer:
        future = producer.push({})
    assert producer.closed and future.done()
    producer.close()
    for call in (lambda: producer.push({}), lambda: producer.push_many([{}]), producer.flush):
        with pytest.raises(thalweg.Closed):
            call()


def test_a_producer_that_nobody_closes_is_drained(topic: thalweg.Topic) -> None:
    producer = topic.producer(batch=1000)
    futures = [producer.push({}) for _ in range(10)]
    del producer
    assert futures[-1].result(timeout=60).offset == 9
    del futures
    gc.collect()
    assert len(consumed(topic, 10)) == 10


def test_a_named_producer_fences_the_one_before(topic: thalweg.Topic) -> None:
    first = topic.producer("daq")
    first.push({}).result()
    with topic.producer("daq") as second:
        assert (second.name, second.id) == (first.name, first.id) == ("daq", second.id)
        assert second.epoch > first.epoch
        second.push({}).result()
        with pytest.raises(thalweg.ProducerFenced):
            first.push({}).result()
    with pytest.raises(thalweg.ProducerFenced):
        first.close()


def wait_until(condition: Any, producer: thalweg.Producer) -> None:
    """Waits with a watchdog: lent memory comes back soon, not at once."""
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end, "it never came back"
        producer.flush()


def test_borrowed_data_is_alive_until_it_is_acknowledged(server: Any) -> None:
    with server.connect() as driver:
        topic = driver.create_topic("frames", storage="memory")
        with topic.producer() as producer:
            producer.push({}).result()
            server.pause()
            frame = np.full(1 << 20, 7, np.uint8)
            alive = weakref.ref(frame)
            future = producer.push({}, frame, borrow=True)
            del frame
            gc.collect()
            assert alive() is not None
            with pytest.raises(thalweg.Timeout):
                future.result(timeout=0.05)
            assert alive() is not None
            server.go_on()
            future.result(timeout=60)
            wait_until(lambda: alive() is None, producer)


def test_short_data_is_let_go_at_once(topic: thalweg.Topic) -> None:
    data = bytearray(b"short")
    with topic.producer(batch=1000) as producer:
        future = producer.push({}, data)
        data.extend(b" and changed")
        assert not future.done()
    assert bytes(consumed(topic, 1)[0].data) == b"short"


def test_a_failing_push_lets_its_data_go(server: Any) -> None:
    with server.connect() as driver:
        topic = driver.create_topic("frames", storage="memory")
        with topic.producer(budget_bytes=1 << 20, at_budget="fail") as producer:
            server.pause()
            try:
                first = producer.push({}, np.zeros(1 << 20, np.uint8))
                frame = np.zeros(1 << 20, np.uint8)
                references = sys.getrefcount(frame)
                for borrow in (False, True):
                    with pytest.raises(thalweg.BudgetExceeded, match="1048576"):
                        producer.push({}, frame, borrow=borrow)
                    assert sys.getrefcount(frame) == references
                assert not first.done()
            finally:
                server.go_on()


def test_a_full_budget_blocks_until_there_is_room(server: Any) -> None:
    with server.connect() as driver:
        topic = driver.create_topic("frames", storage="memory")
        with topic.producer(budget_bytes=1 << 20, block_timeout=0.2) as producer:
            frame = np.zeros(1 << 20, np.uint8)
            server.pause()
            try:
                producer.push({}, frame)
                with pytest.raises(thalweg.BudgetExceeded):
                    producer.push({}, frame)
            finally:
                server.go_on()
            producer.flush()
            producer.push({}, frame)
        with topic.producer(budget_bytes=1 << 20) as producer:
            for _ in range(20):
                producer.push({}, frame)
            producer.push_many([{}] * 20, data=[frame] * 20)
        assert len(consumed(topic, 42)) == 42


def test_threads_push_together(topic: thalweg.Topic) -> None:
    with topic.producer() as producer:

        def push(thread: int) -> None:
            for i in range(1000):
                producer.push({"thread": thread, "i": i})

        threads = [threading.Thread(target=push, args=(thread,)) for thread in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    events = [event.metadata for event in consumed(topic, 4000)]
    for thread in range(4):
        assert [event["i"] for event in events if event["thread"] == thread] == list(range(1000))


def test_a_full_storage_is_named_when_the_ack_timeout_ends(server: Any) -> None:
    driver = server.connect()
    # What is too old leaves, so that there may be space again: the producer waits.
    storage = ("memory", {"bytes_max": 10_000})
    topic = driver.create_topic("t", storage=storage, retention="1d")
    producer = topic.producer(ack_timeout=1)
    producer.push({"n": 0}, b"x" * 9000).result()
    with pytest.raises(thalweg.StorageError, match="^storage is full: t/0: ") as raised:
        producer.push({"n": 1}, b"x" * 9000).result()
    assert raised.value.retryable
    assert raised.value.code == "storage is full"
    partition = driver.status()["topics"][0]["partitions"][0]
    assert "bytes_max" in partition["full"]["reason"]
    with pytest.raises(thalweg.StorageError):
        driver.close()
