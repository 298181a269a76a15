"""What ends by itself: the drain of a queue, and a bounded read of a topic."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import threading
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest

import thalweg


def push_numbers(topic: thalweg.Topic, count: int, first: int = 0) -> None:
    with topic.producer() as producer:
        producer.push_many([{"i": i} for i in range(first, first + count)])


def numbers(events: Any) -> list[int]:
    return [event.metadata["i"] for event in events]


def run_all(calls: list[Callable[[], None]]) -> None:
    """Runs each in a thread of its own; fails if one raises or hangs."""
    raised: list[BaseException] = []

    def run(call: Callable[[], None]) -> None:
        try:
            call()
        except BaseException as error:
            raised.append(error)

    threads = [threading.Thread(target=run, args=(call,), daemon=True) for call in calls]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(200)
        assert not thread.is_alive()
    if raised:
        raise raised[0]


def test_a_drain_ends_when_every_task_is_done(topic: thalweg.Topic) -> None:
    push_numbers(topic, 100)
    done: list[int] = []
    left_at_end: list[int] = []

    def work() -> None:
        with topic.queue("farm", prefetch=4) as queue:
            for event in queue.drain(idle=0.2):
                if event.metadata["i"] % 10 == 3 and event.deliveries == 1:
                    event.return_to_queue(delay=0.6, reason="not yet")
                    continue
                done.append(event.metadata["i"])
                event.acknowledge().result(60)
            left_at_end.append(100 - len(set(done)))

    run_all([work] * 3)
    assert left_at_end == [0, 0, 0]
    assert sorted(set(done)) == list(range(100))


def test_a_drain_waits_for_what_another_holds(topic: thalweg.Topic) -> None:
    push_numbers(topic, 1)
    with topic.queue("farm", prefetch=1) as holder, topic.queue("farm") as other:
        held = holder.pull(timeout=60) or other.pull(timeout=60)
        assert held is not None
        seen: list[int] = []
        drained = threading.Event()

        def drain() -> None:
            for event in other.drain(idle=0.1):
                with event:
                    seen.append(event.deliveries)
            drained.set()

        thread = threading.Thread(target=drain, daemon=True)
        thread.start()
        assert not drained.wait(1.0)
        held.return_to_queue().result(60)
        # Whoever of the two gets it: nothing is left only when it is acknowledged.
        for event in holder.drain(idle=0.1):
            seen.append(event.deliveries)
            event.acknowledge()
        assert drained.wait(60)
        assert seen == [2]


def test_a_drain_survives_a_restart_of_the_server(server: Any) -> None:
    with server.connect() as driver:
        topic = driver.create_topic("tasks")
        push_numbers(topic, 60)
        done: set[int] = set()
        left_at_end: list[int] = []
        first = threading.Event()
        is_back = threading.Event()

        def work() -> None:
            with topic.queue("farm", prefetch=2) as queue:
                for event in queue.drain(idle=0.2):
                    done.add(event.metadata["i"])
                    if len(done) >= 20:
                        first.set()
                        is_back.wait(60)
                    # It may be another's by now: then that one does it.
                    event.acknowledge().exception(60)
                left_at_end.append(60 - len(done))
                assert is_back.is_set()

        def crash() -> None:
            assert first.wait(60)
            server.kill()
            is_back.set()
            # Longer than the idle time: silence is no end.
            assert not threading.Event().wait(1.0)
            server.start()

        run_all([work, work, crash])
        assert left_at_end == [0, 0] and done == set(range(60))


def test_a_drain_is_begun_anew_and_ended_by_others(topic: thalweg.Topic) -> None:
    with topic.queue("farm") as queue:
        assert list(queue.drain(idle=0)) == []
        push_numbers(topic, 3)
        drain = queue.drain(idle=0.1)
        seen = []
        for event in drain:
            with event:
                seen.append(event.metadata["i"])
        assert seen == [0, 1, 2]
        push_numbers(topic, 1, first=3)
        assert list(drain) == []
        for event in queue.drain(idle=0.1):
            with event:
                seen.append(event.metadata["i"])
        assert seen == [0, 1, 2, 3]
        # For ever, unless somebody closes it.
        endless = queue.drain(idle=float("inf"))
        threading.Timer(1.0, queue.close).start()
        assert list(endless) == []
    with pytest.raises(thalweg.Closed):
        queue.drain()
    with pytest.raises(ValueError, match="idle is a number of seconds"):
        topic.queue("other").drain(idle=-1)
    with topic.queue("third") as queue:
        queue.wind_down(1.0)
        assert list(queue.drain()) == []


def test_a_signal_interrupts_a_drain(topic: thalweg.Topic, request: pytest.FixtureRequest) -> None:
    # A shell's background job ignores the signal, and so do its children.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    request.addfinalizer(lambda: signal.signal(signal.SIGINT, before))
    push_numbers(topic, 1)
    with topic.queue("farm") as queue:
        drain = queue.drain(idle=0.1)
        held = next(drain)
        timer = threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT))
        with pytest.raises(KeyboardInterrupt):
            timer.start()
            next(drain)
        held.acknowledge()
        assert list(drain) == []


def test_coroutines_drain_and_read(topic: thalweg.Topic) -> None:
    push_numbers(topic, 20)

    async def work(done: list[int]) -> None:
        async with topic.queue("farm", prefetch=2) as queue:
            async for event in queue.drain(idle=0.1):
                if event.metadata["i"] == 5 and event.deliveries == 1:
                    await event.return_to_queue(delay=0.4)
                    continue
                done.append(event.metadata["i"])
                await event.acknowledge()

    async def main() -> None:
        done: list[int] = []
        await asyncio.wait_for(asyncio.gather(work(done), work(done)), 100)
        assert sorted(done) == list(range(20))
        assert [event.metadata["i"] async for event in topic.read()] == list(range(20))

    asyncio.run(main())


def test_a_read_ends_though_a_producer_goes_on(driver: thalweg.Driver, name: str) -> None:
    topic = driver.create_topic(name, partitions=3, storage="memory")
    push_numbers(topic, 300)
    stop = threading.Event()

    def produce() -> None:
        with topic.producer() as producer:
            while not stop.is_set():
                producer.push({"i": -1}).result(60)

    thread = threading.Thread(target=produce)
    with topic.read() as before:
        thread.start()
        try:
            # What was visible when it began, and nothing else.
            assert sorted(numbers(before)) == list(range(300))
            read = list(topic.read())
        finally:
            stop.set()
            thread.join()
    assert set(range(300)) <= set(numbers(read))


def test_where_a_read_begins_and_ends(driver: thalweg.Driver, name: str) -> None:
    topic = driver.create_topic(name, partitions=2, storage="memory")
    with topic.producer() as producer:
        ids = [producer.push({"i": i}, b"abc", partition=i % 2).result(60) for i in range(10)]

    def of(**given: Any) -> list[int]:
        return sorted(numbers(topic.read(**given)))

    assert of() == of(start="beginning", end="now") == list(range(10))
    assert of(start="latest") == []
    assert of(partitions=[1]) == [1, 3, 5, 7, 9]
    assert of(start=1, end=3) == [2, 3, 4, 5]
    assert of(start=3, end=3) == [] == of(end=0)
    assert of(end=100) == list(range(10))
    assert of(start=ids[4], partitions=[0], end=ids[8]) == [4, 6]
    assert of(end=ids[4]) == [0, 1, 2, 3, 5, 7, 9]
    assert of(end={0: 1, 1: ids[5]}) == [0, 1, 3]
    assert of(end={}) == list(range(10))
    now = datetime.now(timezone.utc)
    assert of(end=now - timedelta(days=1)) == [] == of(start=now + timedelta(days=1))
    assert of(end=now + timedelta(days=1)) == list(range(10))
    assert [bytes(event.data) for event in topic.read(partitions=[0])] == [b"abc"] * 5
    for event in topic.read(data=False):
        assert event.data_size == 3
        with pytest.raises(ValueError, match="without a consumer"):
            event.acknowledge()
    halves = list(topic.read(data=lambda metadata, data: data.range(1, 2)))
    assert {bytes(event.data) for event in halves} == {b"bc"}
    for given, said in [
        ({"start": "cursor"}, "no cursor"),
        ({"end": "then"}, "end is now"),
        ({"end": -1}, "offset of an event"),
        ({"end": {0: ids[1]}}, "not in partition 0"),
        ({"end": {1: 0}, "partitions": [0]}, "not read"),
        ({"start": ids[1], "partitions": [0]}, "none of those"),
    ]:
        with pytest.raises(thalweg.InvalidArgument, match=said):
            topic.read(**given)
    for given in ({"partitions": [2]}, {"end": {2: 1}}):
        with pytest.raises(thalweg.UnknownPartition):
            topic.read(**given)


def test_a_read_of_nothing_and_one_that_is_left(topic: thalweg.Topic) -> None:
    assert list(topic.read()) == []
    push_numbers(topic, 5000)
    with topic.read() as reader:
        assert (next(reader).metadata["i"], reader.closed, reader.topic.name) == (0, False, topic.name)
    assert reader.closed and list(reader) == []
    reader.close()
    left = topic.read()
    assert next(left).metadata["i"] == 0
    del left
    gc.collect()

    def selector(metadata: Any, data: Any) -> Any:
        raise RuntimeError("no such frame")

    with topic.producer() as producer:
        producer.push({"i": 5000}, b"data")
    with pytest.raises(RuntimeError, match="no such frame"), topic.read(data=selector) as reader:
        list(reader)
    assert len(list(topic.read())) == 5001


def test_a_read_reports_what_is_gone(server: Any) -> None:
    with server.connect() as driver:
        topic = driver.create_topic("lost", storage="memory")
        push_numbers(topic, 10)
        (lost,) = topic.fetch(0, 0)[:1]
        server.kill()
        server.start()
        push_numbers(topic, 5, first=100)
        gaps: list[thalweg.Gap] = []
        with topic.read(start=lost.id, on_gap=gaps.append) as reader:
            assert numbers(reader) == [100, 101, 102, 103, 104]
            assert [gap.reason for gap in gaps] == ["memory lost"] and gaps == reader.gaps
        with pytest.warns(thalweg.GapWarning, match="memory lost"):
            assert len(list(topic.read(start=lost.id))) == 5


def test_a_read_survives_a_restart_of_the_server(server: Any) -> None:
    with server.connect() as driver:
        topic = driver.create_topic("frames")
        with topic.producer() as producer:
            for i in range(200):
                producer.push({"i": i}, bytes(100_000))
        with topic.read(credit_bytes=1 << 20) as reader:
            read = [next(reader).metadata["i"]]
            server.kill()
            server.start()
            read += numbers(reader)
        assert read == list(range(200))
