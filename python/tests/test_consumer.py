"""Consumers: where they begin, what they get, whose memory it is."""

from __future__ import annotations

import gc
import threading
import weakref
from datetime import datetime, timedelta, timezone
from typing import Any

import numpy as np
import pytest

import thalweg


def push_numbers(topic: thalweg.Topic, count: int, first: int = 0) -> None:
    with topic.producer() as producer:
        producer.push_many([{"i": i} for i in range(first, first + count)])


def pull(consumer: thalweg.Consumer) -> thalweg.Event:
    event = consumer.pull(timeout=60)
    assert event is not None
    return event


def numbers(consumer: thalweg.Consumer, count: int) -> list[int]:
    return [pull(consumer).metadata["i"] for _ in range(count)]


def test_iteration_goes_on_as_events_come(topic: thalweg.Topic) -> None:
    push_numbers(topic, 1000)
    with topic.consumer("viewer") as consumer:
        seen = []
        for event in consumer:
            seen.append(event.metadata["i"])
            if len(seen) == 1000:
                push_numbers(topic, 1000, first=1000)
            if len(seen) == 2000:
                break
        assert seen == list(range(2000))
        assert consumer.pull(timeout=0) is None


def test_a_pull_that_times_out_loses_nothing(topic: thalweg.Topic) -> None:
    with topic.consumer("viewer") as consumer:
        for first in range(20):
            assert consumer.pull(timeout=0) is None
            assert consumer.pull(timeout=0.001) is None
            push_numbers(topic, 1, first)
            assert numbers(consumer, 1) == [first]


def test_a_consumer_begins_at_a_time(topic: thalweg.Topic) -> None:
    push_numbers(topic, 3)
    with topic.consumer("first") as consumer:
        taken = [pull(consumer).append_time for _ in range(3)]
    epoch = datetime(1970, 1, 1, tzinfo=timezone.utc)
    # One behind the last batch, to the microsecond.
    later = epoch + timedelta(microseconds=taken[-1] // 1000 + 1)
    with topic.consumer("early", start=epoch) as consumer:
        assert numbers(consumer, 3) == [0, 1, 2]
    with topic.consumer("late", start=later) as consumer:
        assert consumer.pull(timeout=0) is None
    with pytest.raises(ValueError, match="time zone"):
        topic.consumer("naive", start=datetime(2026, 1, 31))


def test_batches_of_events(topic: thalweg.Topic) -> None:
    with topic.consumer("viewer") as consumer:
        assert consumer.pull_batch(10, timeout=0) == []
        push_numbers(topic, 25)
        seen: list[int] = []
        while len(seen) < 25:
            events = consumer.pull_batch(10, timeout=60)
            assert 1 <= len(events) <= 10
            seen += [event.metadata["i"] for event in events]
        assert seen == list(range(25))


def test_a_consumer_begins_where_it_is_told(topic: thalweg.Topic) -> None:
    push_numbers(topic, 10)
    with topic.consumer("a") as consumer:
        events = [pull(consumer) for _ in range(10)]
    for start, first in [("cursor", 0), ("beginning", 0), (7, 7), (events[4].id, 4)]:
        with topic.consumer("b", start=start) as consumer:  # type: ignore[arg-type]
            assert numbers(consumer, 1) == [first]
    for start in ("latest", "cursor_or_latest"):
        with topic.consumer("c", start=start) as consumer:  # type: ignore[arg-type]
            assert consumer.pull(timeout=0) is None
            push_numbers(topic, 1, first=100)
            assert numbers(consumer, 1) == [100]
    with pytest.raises(thalweg.InvalidArgument, match="tomorrow"):
        topic.consumer("d", start="tomorrow")  # type: ignore[arg-type]


def test_acknowledged_events_do_not_come_again(driver: thalweg.Driver, topic: thalweg.Topic) -> None:
    push_numbers(topic, 10)
    with topic.consumer("viewer") as consumer:
        events = [pull(consumer) for _ in range(10)]
        events[3].acknowledge()
        consumer.flush()
        [cursor] = driver.cursors(topic, "viewer")
        assert (cursor.partition, cursor.offset) == (0, 4)
        # Nor does an acknowledgement of an earlier one move it back.
        events[1].acknowledge()
        consumer.acknowledge(events[5].id)
    with topic.consumer("viewer") as consumer:
        assert numbers(consumer, 4) == [6, 7, 8, 9]
        consumer.seek(0, 2)
        assert consumer.position(0) == (events[0].id.incarnation, 2)
        assert numbers(consumer, 2) == [2, 3]
        consumer.seek(0, events[8].id)
        assert numbers(consumer, 2) == [8, 9]
    driver.seek(topic, "viewer", 0, 1)
    with topic.consumer("viewer") as consumer:
        assert numbers(consumer, 1) == [1]
    driver.delete_consumer(topic, "viewer")
    assert driver.cursors(topic) == []


def test_partitions_are_chosen_and_keep_their_order(driver: thalweg.Driver, name: str) -> None:
    topic = driver.create_topic(name, partitions=3, storage="memory")
    with topic.producer() as producer:
        for i in range(30):
            producer.push({"i": i}, partition=i % 3)
    with topic.consumer("all") as consumer:
        seen: dict[int, list[int]] = {0: [], 1: [], 2: []}
        for _ in range(30):
            event = pull(consumer)
            seen[event.id.partition].append(event.metadata["i"])
    assert seen == {p: list(range(p, 30, 3)) for p in range(3)}
    with topic.consumer("some", partitions=[2]) as consumer:
        assert numbers(consumer, 10) == list(range(2, 30, 3))
        assert consumer.pull(timeout=0) is None
    with pytest.raises(thalweg.UnknownPartition, match="3"):
        topic.consumer("wrong", partitions=[3])


def test_metadata_is_parsed_when_asked_for(topic: thalweg.Topic) -> None:
    with topic.producer() as producer:
        producer.push({"a": 1})
        producer.push(b"no json")
        producer.push(None)
    with topic.consumer("viewer") as consumer:
        first, second, third = (pull(consumer) for _ in range(3))
    assert first.metadata is first.metadata
    with pytest.raises(ValueError, match="not JSON"):
        second.metadata  # noqa: B018
    assert second.metadata_bytes == b"no json"
    assert third.metadata is None


def test_metadata_that_is_not_json_holds_up_no_selector_and_no_table(
    driver: thalweg.Driver, name: str
) -> None:
    topic = driver.create_topic(name, storage="memory")
    with topic.producer() as producer:
        producer.push({"a": 1}, b"first")
        producer.push("not json", b"second")
        producer.push({"a": 3}, b"third")
    with topic.consumer("viewer", data=lambda metadata, data: data) as consumer:
        first, second, third = (pull(consumer) for _ in range(3))
    assert (bytes(first.data), bytes(third.data)) == (b"first", b"third")
    assert second.metadata_bytes == b"not json"
    with pytest.raises(thalweg.InvalidArgument, match="not JSON"):
        second.metadata  # noqa: B018
    frame = topic.read().to_pandas()
    assert frame["_metadata"][1] == b"not json"
    assert [frame["a"][0], frame["a"][2]] == [1, 3]
    assert topic.read().to_arrow()["_metadata"].to_pylist() == [None, b"not json", None]
    checked = driver.create_topic(f"{name}-checked", storage="memory", validator="json")
    with checked.producer() as producer, pytest.raises(thalweg.InvalidEvent, match="not JSON"):
        producer.push("not json").result()


def test_a_lack_of_memory_is_not_taken_for_metadata_that_is_not_json(
    shared_server: Any, topic: thalweg.Topic, run_script: Any
) -> None:
    with topic.producer() as producer:
        producer.push({"a": 1}, b"first")
    code = """
import sys, thalweg, thalweg._json
understood, thalweg._json.loads = thalweg._json.loads, None
failures = [MemoryError("no memory left")]
def loads(text):
    if b'"a"' in text and failures:
        raise failures.pop()
    return understood(text)
thalweg._json.loads = loads
topic = thalweg.Driver(sys.argv[1]).open_topic(sys.argv[2])
consumer = topic.consumer("viewer", data=lambda metadata, data: data)
try:
    print(consumer.pull(timeout=60))
except MemoryError as lack:
    print(lack)
print(bytes(consumer.pull(timeout=60).data))
"""
    done = run_script(code, shared_server.group_file, topic.name)
    assert done.stdout == "no memory left\nb'first'\n", done.stderr



def test_a_raw_topic_has_bytes(driver: thalweg.Driver, name: str) -> None:
    topic = driver.create_topic(name, storage="memory", serializer="raw")
    with topic.producer() as producer:
        producer.push(b"\x00\xff")
    with topic.consumer("viewer", data=lambda metadata, data: None) as consumer:
        assert pull(consumer).metadata == b"\x00\xff"


FRAME = np.arange(640 * 480, dtype=np.uint16).reshape(480, 640)


@pytest.fixture(params=["inline", "large"])
def frames(request: pytest.FixtureRequest, topic: thalweg.Topic) -> tuple[thalweg.Topic, Any]:
    """A topic with four events: frames of a size that travels in a batch, or apart."""
    frame = FRAME[:10, :20].copy() if request.param == "inline" else FRAME
    with topic.producer() as producer:
        for i in range(4):
            metadata = {"i": i, "dtype": str(frame.dtype), "shape": frame.shape}
            producer.push(metadata, frame + np.uint16(i))
    return topic, frame


def test_data_comes_as_arrays(frames: tuple[thalweg.Topic, Any]) -> None:
    topic, frame = frames
    with topic.consumer("viewer") as consumer:
        for i in range(4):
            event = pull(consumer)
            array = event.numpy()
            assert array.dtype == frame.dtype
            assert np.array_equal(array, frame + np.uint16(i))
            assert not array.flags.writeable
            assert event.data.readonly and event.data.nbytes == frame.nbytes
            assert event.buffer is None
            assert np.array_equal(event.numpy("uint16", -1), array.ravel())
            assert np.array_equal(event.numpy("uint16", (-1, frame.shape[1])), array)
            with pytest.raises(ValueError, match=r"\(7,\)"):
                event.numpy("uint16", 7)


def test_data_outlives_the_consumer(frames: tuple[thalweg.Topic, Any]) -> None:
    topic, frame = frames
    with topic.consumer("viewer") as consumer:
        array = pull(consumer).numpy()
    del consumer
    gc.collect()
    assert np.array_equal(array, frame)


def test_no_data_if_none_is_wanted(frames: tuple[thalweg.Topic, Any]) -> None:
    topic, frame = frames
    with topic.consumer("viewer", data=False) as consumer:
        event = pull(consumer)
        with pytest.raises(thalweg.exceptions.InvalidArgument, match="read_data"):
            event.data  # noqa: B018
        assert event.data_size == frame.nbytes


@pytest.mark.parametrize("inline_along", [False, True])
def test_a_selector_sees_the_metadata_and_chooses(
    frames: tuple[thalweg.Topic, Any], inline_along: bool
) -> None:
    topic, frame = frames

    def select(metadata: Any, data: thalweg.DataView) -> thalweg.DataView | None:
        assert data.nbytes == len(data) == frame.nbytes
        match metadata["i"]:
            case 0:
                return None
            case 1:
                return data
            case 2:
                return data.rows(metadata["shape"], metadata["dtype"], slice(2, 5))
            case _:
                row = data.rows(frame.shape, frame.dtype, [-1, 0])
                return row.stride(count=3, block=2, gap=4).segments([(2, 4), (0, 2)])

    with topic.consumer("viewer", data=select, inline_along=inline_along) as consumer:
        none, whole, rows, nested = (pull(consumer) for _ in range(4))
    assert none.data.nbytes == 0
    assert np.array_equal(whole.numpy(), frame + np.uint16(1))
    expected = frame[2:5] + np.uint16(2)
    assert np.array_equal(rows.numpy(shape=expected.shape), expected)
    last = (frame + np.uint16(3))[-1]
    assert list(nested.numpy(shape=3)) == [last[3], last[6], last[0]]
    with pytest.raises(ValueError, match="no array of shape"):
        rows.numpy()


@pytest.mark.parametrize("inline_along", [False, True])
def test_an_allocator_says_where_data_lands(
    frames: tuple[thalweg.Topic, Any], inline_along: bool
) -> None:
    topic, frame = frames
    stack = np.zeros((4, 3, frame.shape[1]), frame.dtype)

    def select(metadata: Any, data: thalweg.DataView) -> thalweg.DataView:
        return data.rows(frame.shape, frame.dtype, slice(0, 3))

    def allocate(metadata: Any, view: thalweg.DataView) -> Any:
        assert view.nbytes == stack[0].nbytes
        return stack[metadata["i"]]

    with topic.group("viewers", data=select, allocator=allocate, inline_along=inline_along) as consumer:
        for i in range(4):
            event = pull(consumer)
            assert np.shares_memory(event.buffer, stack)
            assert event.data.obj is event.buffer or event.data.nbytes == stack[i].nbytes
            assert np.array_equal(stack[i], frame[:3] + np.uint16(i))
            array = event.numpy(shape=stack[i].shape)
            assert np.shares_memory(array, stack) and array.flags.writeable


def test_allocated_memory_is_let_go(frames: tuple[thalweg.Topic, Any]) -> None:
    topic, frame = frames
    made: list[weakref.ref[Any]] = []

    def allocate(metadata: Any, view: thalweg.DataView) -> Any:
        buffer = np.empty(view.nbytes, np.uint8)
        made.append(weakref.ref(buffer))
        return buffer

    with topic.consumer("viewer", allocator=allocate) as consumer:
        event: thalweg.Event | None = pull(consumer)
        assert event is not None and event.buffer is made[0]()
        event = None
        gc.collect()
        assert made[0]() is None


def test_threads_pull_with_callbacks_while_others_look(topic: thalweg.Topic) -> None:
    """A selector needs the GIL while it holds what `position` waits for."""
    push_numbers(topic, 2000)
    with topic.producer() as producer:
        producer.push_many({"i": -1}, data=[b"data"] * 2000)
    done = threading.Event()
    seen: list[int] = []

    def select(metadata: Any, data: thalweg.DataView) -> thalweg.DataView:
        return data.range(1, 2)

    with topic.consumer("viewer", data=select) as consumer:

        def look() -> None:
            while not done.is_set():
                consumer.position(0)

        def take() -> None:
            while len(seen) < 4000:
                event = consumer.pull(timeout=0.01)
                if event is not None:
                    event.acknowledge()
                    seen.append(event.id.offset)
                    assert bytes(event.data) in (b"", b"at")

        threads = [threading.Thread(target=work) for work in (look, look, take, take)]
        for thread in threads:
            thread.start()
        for thread in threads[2:]:
            thread.join(100)
        done.set()
        for thread in threads[:2]:
            thread.join(100)
    assert sorted(seen) == list(range(4000))


def test_one_event_kept_keeps_its_memory(topic: thalweg.Topic) -> None:
    push_numbers(topic, 100)
    with topic.consumer("viewer") as consumer:
        kept = [pull(consumer) for _ in range(100)][37]
        consumer.seek(0, 90)
        assert numbers(consumer, 10) == list(range(90, 100))
    del consumer
    gc.collect()
    assert kept.metadata == {"i": 37}


class Mine(Exception):
    """What only this test raises."""


@pytest.mark.parametrize("which", ["data", "allocator"])
def test_what_a_callback_raises_comes_out_of_the_pull(
    frames: tuple[thalweg.Topic, Any], which: str
) -> None:
    topic, frame = frames
    calls = 0

    def callback(metadata: Any, view: thalweg.DataView) -> Any:
        nonlocal calls
        calls += 1
        if calls == 1:
            raise Mine("first")
        return view if which == "data" else bytearray(view.nbytes)

    options: dict[str, Any] = {which: callback}
    with topic.consumer("viewer", **options) as consumer:
        with pytest.raises(Mine, match="first"):
            consumer.pull(timeout=60)
        assert numbers(consumer, 4) == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"data": lambda metadata, data: 7}, "int"),
        ({"data": lambda metadata, data: data.range(1, data.nbytes)}, "outside"),
        ({"allocator": lambda metadata, view: bytes(view.nbytes)}, "writable"),
        ({"allocator": lambda metadata, view: bytearray(3)}, "3 bytes"),
        ({"allocator": lambda metadata, view: None}, "NoneType"),
        ({"allocator": lambda metadata, view: np.empty((view.nbytes, 2), "u1")[:, 0]}, "contig"),
    ],
)
def test_callbacks_that_return_nonsense_are_told(
    frames: tuple[thalweg.Topic, Any], options: dict[str, Any], reason: str
) -> None:
    topic, _ = frames
    with topic.consumer("viewer", **options) as consumer:
        with pytest.raises(thalweg.InvalidArgument, match=reason):
            consumer.pull(timeout=60)


def test_a_closed_consumer_ends_iteration(topic: thalweg.Topic) -> None:
    push_numbers(topic, 3)
    with topic.consumer("viewer") as consumer:
        event = pull(consumer)
        consumer.close()
    assert consumer.closed
    assert list(consumer) == []
    for call in (consumer.pull, consumer.flush, event.acknowledge, lambda: consumer.seek(0, 0)):
        with pytest.raises(thalweg.Closed):
            call()
    assert event.metadata == {"i": 0}


def test_closing_ends_a_wait_of_another_thread(topic: thalweg.Topic) -> None:
    consumer = topic.consumer("viewer")
    entered = threading.Event()
    seen: list[Any] = []

    def wait() -> None:
        entered.set()
        seen.append(list(consumer))

    thread = threading.Thread(target=wait)
    thread.start()
    assert entered.wait(60)
    consumer.close()
    thread.join(60)
    assert seen == [[]]


def test_what_is_lost_is_a_gap(server: Any) -> None:
    with server.connect() as driver:
        topic = driver.create_topic("lost", storage="memory")
        push_numbers(topic, 10)
        gaps: list[thalweg.Gap] = []
        with (
            topic.consumer("told", on_gap=gaps.append) as told,
            topic.consumer("warned") as warned,
        ):
            assert numbers(told, 2) == numbers(warned, 2) == [0, 1]
            server.kill()
            server.start()
            push_numbers(topic, 1, first=100)
            while pull(told).metadata["i"] != 100:
                pass
            with pytest.warns(thalweg.GapWarning, match="memory lost"):
                while pull(warned).metadata["i"] != 100:
                    pass
            assert [gap.reason for gap in gaps] == ["memory lost"]
            assert told.gaps == gaps and warned.gaps == gaps
        assert [gap.reason for gap in driver.gaps("lost")] == ["memory lost"]


def test_partitions_are_merged_in_the_order_of_appending(driver: thalweg.Driver, name: str) -> None:
    topic = driver.create_topic(name, partitions=3, storage="memory")
    order = [0, 2, 2, 1, 0, 1, 1, 2, 0]
    with topic.producer() as producer:
        for i, partition in enumerate(order):
            producer.push({"i": i}, partition=partition).result(60)
    # Only what is behind the end of the first partition to end waits that long.
    with topic.consumer("viewer", start="beginning", merge_wait=3.0) as consumer:
        seen = []
        for _ in order:
            event = consumer.pull(timeout=60)
            assert event is not None
            seen.append(event.metadata["i"])
        assert seen == list(range(len(order)))
        assert consumer.pull(timeout=0) is None
    with pytest.raises(ValueError, match="merge_wait"):
        topic.consumer("viewer", merge_wait=-1)


def test_a_consumer_that_its_own_callables_refer_to_is_collected(topic: thalweg.Topic) -> None:
    push_numbers(topic, 3)

    class Reader:
        """As programs are written: an object that has the consumer, whose callables are its methods."""

        def __init__(self) -> None:
            self.consumer = topic.consumer(
                "reader", data=self.choose, allocator=self.allocate, on_gap=self.lost
            )

        def choose(self, metadata: Any, view: thalweg.DataView) -> thalweg.DataView:
            return view

        def allocate(self, metadata: Any, view: thalweg.DataView) -> bytearray:
            return bytearray(view.nbytes)

        def lost(self, gap: Any) -> None:
            raise AssertionError(gap)

    reader = Reader()
    assert numbers(reader.consumer, 3) == [0, 1, 2]
    consumer, whole = weakref.ref(reader.consumer), weakref.ref(reader)
    del reader
    gc.collect()
    assert consumer() is None and whole() is None
