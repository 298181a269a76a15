"""Places in a topic as people write them: `start`, `end`, `Topic.seek`."""

from __future__ import annotations

import time
from datetime import datetime, timedelta, timezone
from typing import Any

import numpy as np
import pytest
import thalweg


def numbers(reader: thalweg.Reader) -> list[int]:
    return [event.metadata["n"] for event in reader]


@pytest.fixture
def ten(topic: thalweg.Topic) -> thalweg.Topic:
    with topic.producer() as producer:
        for n in range(10):
            # A batch each: times are those of batches.
            producer.push({"n": n}).result(60)
    return topic


def test_the_last_events_are_counted_from_the_end(ten: thalweg.Topic) -> None:
    assert numbers(ten.read(start=-3)) == [7, 8, 9]
    assert numbers(ten.read(start="-3")) == [7, 8, 9]
    assert numbers(ten.read(start=-300)) == list(range(10))
    assert numbers(ten.read(start=-3, end=9)) == [7, 8]
    with ten.consumer("last", start=-2) as consumer:
        assert [consumer.pull(60).metadata["n"] for _ in range(2)] == [8, 9]  # type: ignore[union-attr]


def test_each_partition_has_last_events(driver: thalweg.Driver, name: str) -> None:
    topic = driver.create_topic(name, partitions=2)
    with topic.producer() as producer:
        for n in range(10):
            producer.push({"n": n}, partition=n % 2)
    assert sorted(numbers(topic.read(start=-2))) == [6, 7, 8, 9]
    assert numbers(topic.read(start=-2, partitions=[1])) == [7, 9]


def test_a_time_is_a_text_a_datetime_or_so_long_ago(ten: thalweg.Topic) -> None:
    took = next(iter(ten.read(start=5))).append_time
    at = np.datetime64(took, "ns")
    assert numbers(ten.read(start=at)) == [5, 6, 7, 8, 9]
    assert numbers(ten.read(end=at)) == [0, 1, 2, 3, 4]
    text = datetime.fromtimestamp(took // 10**9, timezone.utc)
    # To the second: the text lies before all of it.
    for early in (text, text.isoformat(), text.astimezone().strftime("%Y-%m-%d %H:%M:%S")):
        assert numbers(ten.read(start=early))[-1] == 9
    for ago in ("-1h", "-90s", "-7d", timedelta(hours=1), np.timedelta64(1, "h")):
        assert numbers(ten.read(start=ago)) == list(range(10)), ago
        assert numbers(ten.read(end=ago)) == [], ago
    tomorrow = datetime.now(timezone.utc) + timedelta(days=1)
    assert numbers(ten.read(start=tomorrow)) == []
    assert numbers(ten.read(end=tomorrow.date().isoformat() + " 23:59")) == list(range(10))


@pytest.mark.parametrize(
    ("start", "word"),
    [
        ("yesterday", "-15m"),
        ("", "-15m"),
        (2**64, "offset"),
        (-(2**70), "offset"),
        (0.5, "offset"),
        (timedelta(seconds=-1), "ago"),
        (np.datetime64("NaT"), "NaT"),
        (np.timedelta64("NaT"), "NaT"),
        (np.datetime64("2600-01-01"), "2262"),
        (np.datetime64("2300-01-01"), "2262"),
        (np.timedelta64(400 * 366, "D"), "292 years"),
        (datetime.now(), "time zone"),
    ],
)
def test_what_is_no_place_is_refused_with_what_is(
    ten: thalweg.Topic, start: Any, word: str
) -> None:
    for call in (
        ten.read,
        lambda start: ten.consumer("c", start=start),
        lambda start: ten.seek("c", start),
    ):
        with pytest.raises((ValueError, TypeError, thalweg.InvalidArgument), match=word):
            call(start=start)


def test_a_cursor_is_moved_to_any_place(ten: thalweg.Topic) -> None:
    took = next(iter(ten.read(start=5))).append_time
    event = next(iter(ten.read(start=6)))
    places: list[tuple[Any, int]] = [
        ("beginning", 0),
        ("latest", 10),
        (4, 4),
        (-3, 7),
        ("-1h", 0),
        (np.datetime64(took, "ns"), 5),
        (event.id, 6),
        (np.datetime64(time.time_ns(), "ns") + np.timedelta64(1, "h"), 10),
    ]
    for to, offset in places:
        (cursor,) = ten.seek("c", to)
        assert (cursor.consumer, cursor.offset) == ("c", offset), to
    assert ten.cursors("c") == ten.cursors() == [cursor]
    with pytest.raises(thalweg.InvalidArgument, match="cursor"):
        ten.seek("c", "cursor")
    with pytest.raises(thalweg.UnknownPartition):
        ten.seek("c", 0, partitions=[1])
    ten.delete_consumer("c")
    assert ten.cursors() == []


def test_the_lag_of_everybody_who_reads_a_topic(driver: thalweg.Driver, name: str) -> None:
    topic = driver.create_topic(name, partitions=2)
    assert topic.lag() == []
    with topic.producer() as producer:
        for n in range(10):
            producer.push({"n": n}, partition=n % 2)
    with topic.consumer("viewer", partitions=[1]) as viewer:
        events = [viewer.pull(60) for _ in range(3)]
        events[-1].acknowledge()  # type: ignore[union-attr]
        viewer.flush()
        # In a partition without a cursor it would begin with the first event.
        (lag,) = topic.lag()
        assert lag == thalweg.Lag("viewer", "independent", 1, 7, {0: 5, 1: 2})
    with topic.queue("farm") as queue:
        events = [queue.pull(60) for _ in range(10)]
        for event in events[2:6]:
            event.acknowledge().result(60)  # type: ignore[union-attr]
        assert {lag.name: (lag.kind, lag.members, lag.events) for lag in topic.lag()} == {
            "farm": ("queue", 1, 6),
            "viewer": ("independent", 0, 7),
        }
        del event, events
    topic.delete()
    with pytest.raises(thalweg.UnknownTopic):
        topic.lag()


def test_a_topic_is_altered_looked_at_and_deleted_by_itself(
    driver: thalweg.Driver, topic: thalweg.Topic
) -> None:
    assert topic.alter(retention="1GB").definition["retention"] == topic.definition["retention"]
    assert topic.gaps() == []
    topic.delete()
    assert not driver.topic_exists(topic.name)
    with pytest.raises(thalweg.UnknownTopic):
        topic.delete()


def test_a_topic_and_who_reads_it_say_why_nothing_comes(ten: thalweg.Topic) -> None:
    assert "10 events" in ten.explain()
    assert "under the name nobody" in ten.explain("nobody")
    with ten.consumer("viewer") as consumer:
        events = [consumer.pull(60) for _ in range(10)]
        assert "has not acknowledged an event yet" in consumer.explain()
        events[-1].acknowledge()  # type: ignore[union-attr]
        consumer.flush()
        sentence, following = consumer.explain().split("\nnext: ")
        assert "has read and acknowledged all" in sentence and following.startswith("thalweg ")
    with ten.queue("farm") as queue:
        held = [queue.pull(60) for _ in range(10)]
        assert "10 events" in queue.explain() and "Nothing of the queue farm" in queue.explain()
        del held
