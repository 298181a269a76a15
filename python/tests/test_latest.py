"""`consumer(latest=True)`: what a viewer needs, the newest event and a count of the others."""

from __future__ import annotations

import asyncio
import threading
import time

import numpy as np
import pytest
import thalweg


def fill(topic: thalweg.Topic, numbers: range, size: int = 0) -> None:
    with topic.producer() as producer:
        for n in numbers:
            producer.push({"n": n}, np.full(size, n % 256, np.uint8) if size else None)


def pull(consumer: thalweg.Consumer) -> thalweg.Event:
    event = consumer.pull(60)
    assert event is not None
    return event


def test_it_begins_with_the_newest_event(topic: thalweg.Topic) -> None:
    fill(topic, range(10))
    for _ in range(2):
        # The second time its cursor is at the end.
        with topic.consumer("viewer", latest=True) as viewer:
            event = pull(viewer)
            assert event.metadata == {"n": 9} and viewer.skipped == 0
            event.acknowledge()
            assert viewer.pull(0) is None


@pytest.mark.parametrize("size", [0, 100, 300_000])
def test_a_viewer_that_is_slow_sees_the_newest_and_counts_the_rest(topic: thalweg.Topic, size: int) -> None:
    fill(topic, range(1), size)
    viewer = topic.consumer("viewer", latest=True)
    had = [pull(viewer).metadata["n"]]
    pushing = threading.Thread(target=fill, args=(topic, range(1, 200), size))
    pushing.start()
    while had[-1] != 199:
        event = pull(viewer)
        n = event.metadata["n"]
        assert bytes(event.data) == bytes([n % 256]) * size
        had.append(n)
    pushing.join()
    assert had == sorted(set(had))
    assert viewer.pull(0) is None
    viewer.close()
    assert viewer.skipped == 200 - len(had), "of those between the first and the last"
    assert "newest" not in viewer.explain()


def test_what_arrives_while_the_program_is_away_is_one_event(topic: thalweg.Topic) -> None:
    fill(topic, range(3))
    with topic.consumer("viewer", start="beginning", latest=True) as viewer:
        while viewer.pull(0) is None:
            time.sleep(0.001)
        # Whether each batch was on its way by itself is not known; the last one is.
        fill(topic, range(3, 1000))
        last = None
        while last != 999:
            last = pull(viewer).metadata["n"]
        assert viewer.position(0) == (1, 1000)


def test_each_partition_has_a_newest_event(driver: thalweg.Driver, name: str) -> None:
    topic = driver.create_topic(name, partitions=3)
    with topic.producer() as producer:
        for n in range(30):
            producer.push({"n": n}, partition=n % 3)
    with topic.consumer("viewer", start="beginning", latest=True) as viewer:
        last: dict[int, int] = {}
        count = 0
        while sorted(last.values()) != [27, 28, 29]:
            event = pull(viewer)
            last[event.id.partition] = event.metadata["n"]
            count += 1
        assert viewer.skipped + count == 30
    with topic.consumer("viewer", latest=True) as viewer:
        assert sorted(event.metadata["n"] for event in (pull(viewer) for _ in range(3))) == [27, 28, 29]


def test_in_a_coroutine(topic: thalweg.Topic) -> None:
    fill(topic, range(5))

    async def first() -> int:
        async with topic.consumer("viewer", latest=True) as viewer:
            async for event in viewer:
                return int(event.metadata["n"])
        raise AssertionError("no event")

    assert asyncio.run(first()) == 4


def test_others_skip_nothing(topic: thalweg.Topic) -> None:
    fill(topic, range(5))
    with topic.consumer("reader") as reader:
        assert [pull(reader).metadata["n"] for _ in range(5)] == list(range(5))
        assert reader.skipped == 0


def test_it_does_not_go_with_merging(topic: thalweg.Topic) -> None:
    with pytest.raises(thalweg.InvalidArgument, match="latest and merge_wait do not go together"):
        topic.consumer("viewer", latest=True, merge_wait=1.0)
