"""A pushed event has the data that the push was given, whatever becomes of the buffer."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import thalweg

SIZES = [128 << 10, 1 << 20, 10 << 20]
FRAMES = 3


@pytest.fixture(scope="module")
def listening(tmp_path_factory: pytest.TempPathFactory, shared_server: Any) -> Iterator[Any]:
    """A server that can be reached in every way."""
    directory = tmp_path_factory.mktemp("ways")
    server = type(shared_server)(directory, f"unix://{directory}/s.sock", "tcp://127.0.0.1:0")
    server.start()
    yield server
    server.stop()


@pytest.fixture(params=["tcp", "unix", "shm", "embedded"])
def way(request: Any, listening: Any, tmp_path: Path) -> Iterator[thalweg.Driver]:
    """A driver that reaches its server in that way."""
    if request.param == "embedded":
        driver = thalweg.Driver.embedded(tmp_path / "data")
        yield driver
        with contextlib.suppress(thalweg.DataChanged):
            driver.close()
        return
    listening.connect().close()
    group = json.loads(listening.group_file.read_text())
    (address,) = (at for at in group["endpoints"] if at.startswith(f"{request.param}://"))
    driver = thalweg.Driver(address=address, token=group["token"])
    yield driver
    # Closing says once more what a producer failed with.
    with contextlib.suppress(thalweg.DataChanged):
        driver.close()


def frames_of(topic: thalweg.Topic, count: int) -> list[bytes]:
    with topic.consumer("reader") as consumer:
        events = [consumer.pull(timeout=60) for _ in range(count)]
    return [bytes(event.data) for event in events if event is not None]


def filled(size: int, index: int) -> bytes:
    return bytes([index + 1]) * size


@pytest.mark.parametrize("size", SIZES)
def test_a_buffer_may_be_used_again_at_once(way: thalweg.Driver, name: str, size: int) -> None:
    topic = way.create_topic(name, storage="memory")
    frame = np.empty(size, np.uint8)
    # Batches that are not full wait for the end: nothing is sent meanwhile.
    with topic.producer(batch=1000) as producer:
        for index in range(FRAMES):
            frame[:] = index + 1
            producer.push({"i": index}, frame)
        frame[:] = 0
    assert frames_of(topic, FRAMES) == [filled(size, index) for index in range(FRAMES)]


def test_so_may_those_of_push_many(way: thalweg.Driver, name: str) -> None:
    size = SIZES[0]
    topic = way.create_topic(name, storage="memory")
    block = np.empty((FRAMES, size), np.uint8)
    pieces = [bytearray(size) for _ in range(FRAMES)]
    with topic.producer(batch=1000) as producer:
        for index in range(FRAMES):
            block[index] = index + 1
            pieces[index][:] = filled(size, index)
        producer.push_many(None, block)
        producer.push_many(None, pieces)
        producer.push_many(None, [memoryview(block[index]) for index in range(FRAMES)])
        # One event of several pieces, of which one cannot change.
        producer.push(None, [pieces[0], b"constant", memoryview(pieces[1])])
        block[:] = 0
        for piece in pieces:
            piece[:] = bytes(size)
    frames = frames_of(topic, 3 * FRAMES + 1)
    assert frames[:-1] == 3 * [filled(size, index) for index in range(FRAMES)]
    assert frames[-1] == filled(size, 0) + b"constant" + filled(size, 1)


@pytest.mark.parametrize("size", [100, 200_000])
def test_so_may_those_of_a_producer_with_threads(
    topic: thalweg.Topic, size: int
) -> None:
    frame = bytearray(size)
    with topic.producer(batch=1000, threads=2) as producer:
        for index in range(100):
            frame[:] = filled(size, index)
            producer.push({"i": index}, frame)
        frame[:] = bytes(size)
    assert frames_of(topic, 100) == [filled(size, index) for index in range(100)]


def test_so_may_those_of_requests_and_replies(server: Any) -> None:
    size = 1 << 20
    with server.connect() as driver:
        topic = driver.create_topic("requests", storage="memory")
        request, reply = bytearray(size), bytearray(size)
        with topic.queue("workers") as workers, topic.requester() as requester:
            # Opens what the first ones of each wait for.
            first = requester.request({})
            event = workers.pull(timeout=60)
            assert event is not None
            event.reply({}).result(timeout=60)
            first.result(timeout=60)
            server.pause()
            request[:] = filled(size, 0)
            answer = requester.request({}, request)
            request[:] = bytes(size)
            server.go_on()
            event = workers.pull(timeout=60)
            assert event is not None and bytes(event.data) == filled(size, 0)
            server.pause()
            reply[:] = filled(size, 1)
            replied = event.reply({}, reply)
            reply[:] = bytes(size)
            server.go_on()
            assert bytes(answer.result(timeout=60).data) == filled(size, 1)
            replied.result(timeout=60)


def test_what_is_borrowed_is_sent_from_where_it_lies(topic: thalweg.Topic) -> None:
    """What is changed too early, against the promise, is seen: nothing was copied."""
    size = 1 << 20
    frame, block = np.zeros(size, np.uint8), np.zeros((2, size), np.uint8)
    with topic.producer(batch=1000) as producer:
        producer.push({}, frame, borrow=True)
        producer.push({}, [frame, frame], borrow=True)
        producer.push_many(None, block, borrow=True)
        frame[:] = 7
        block[:] = 8
    seven, eight = bytes([7]) * size, bytes([8]) * size
    assert frames_of(topic, 4) == [seven, 2 * seven, eight, eight]


def test_what_cannot_change_is_not_copied(topic: thalweg.Topic) -> None:
    data = bytes(1 << 20)
    view = memoryview(data)[1000:]
    with topic.producer(batch=1000) as producer:
        references = sys.getrefcount(data)
        producer.push({}, data)
        assert sys.getrefcount(data) == references + 1
        references = sys.getrefcount(view)
        producer.push({}, view)
        assert sys.getrefcount(view) == references + 1
        frame = np.zeros(1 << 20, np.uint8)
        references = sys.getrefcount(frame)
        producer.push({}, frame)
        assert sys.getrefcount(frame) == references
    # Nor is what was consumed.
    with topic.consumer("reader") as consumer, topic.producer(batch=1000) as producer:
        event = consumer.pull(timeout=60)
        assert event is not None
        view = event.data
        references = sys.getrefcount(view)
        producer.push({}, view)
        assert sys.getrefcount(view) == references + 1


def test_copies_are_within_the_budget(server: Any) -> None:
    """What is pushed is not copied before there is space for it."""
    frame = np.zeros(1 << 20, np.uint8)
    with server.connect() as driver:
        topic = driver.create_topic("frames", storage="memory")
        with topic.producer(budget_bytes=2 << 20, at_budget="fail") as producer:
            server.pause()
            futures = []
            with pytest.raises(thalweg.BudgetExceeded):
                for index in range(10):
                    frame[:] = index + 1
                    futures.append(producer.push({}, frame))
            assert 1 <= len(futures) <= 2
            frame[:] = 0
            server.go_on()
        stored = frames_of(topic, len(futures))
        assert stored == [filled(1 << 20, index) for index in range(len(futures))]


def test_a_borrowed_buffer_that_changes_is_noticed(way: thalweg.Driver, name: str) -> None:
    topic = way.create_topic(name, storage="memory")
    good, bad = np.full(3 << 20, 1, np.uint8), np.full(3 << 20, 2, np.uint8)
    with topic.producer(batch=1000, check_borrowed=True) as producer:
        stored = [producer.push({"i": 0}, good, borrow=True), producer.push({"i": 1}, bad)]
        producer.flush()
        assert [future.result().offset for future in stored] == [0, 1]
    producer = topic.producer(batch=1000, check_borrowed=True)
    changed = producer.push({"i": 2}, bad, borrow=True)
    bad[1234] = 7
    with pytest.raises(thalweg.DataChanged, match=r'3145728 bytes .*\{"i": ?2\}'):
        changed.result(timeout=60)
    with pytest.raises(thalweg.DataChanged):
        producer.push({"i": 3}, good)
    with pytest.raises(thalweg.DataChanged):
        producer.close()
    assert frames_of(topic, 2) == [filled(3 << 20, 0), filled(3 << 20, 1)]
    topic.refresh()
    assert topic.partitions[0].end == 2


def test_what_changes_while_it_is_sent_is_not_stored(way: thalweg.Driver, name: str) -> None:
    """Or it was sent before it changed."""
    topic = way.create_topic(name, storage="memory")
    pushed = 0
    for _ in range(10):
        frame = np.full(3 << 20, 1, np.uint8)
        producer = topic.producer(check_borrowed=True)
        future = producer.push({}, frame, borrow=True)
        # At the end first, where it is sent last.
        for begin in range(frame.size - (1 << 18), -1, -(1 << 18)):
            frame[begin : begin + (1 << 18)] = 2
        try:
            future.result(timeout=60)
            producer.close()
            pushed += 1
        except thalweg.DataChanged:
            with pytest.raises(thalweg.DataChanged):
                producer.close()
    topic.refresh()
    assert topic.partitions[0].end == pushed
    assert frames_of(topic, pushed) == [filled(3 << 20, 0)] * pushed
