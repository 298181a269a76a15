"""Groups: members that share the partitions of a topic."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import thalweg


@pytest.fixture
def topic(driver: thalweg.Driver, name: str) -> thalweg.Topic:
    """A topic of four partitions in memory."""
    return driver.create_topic(name, partitions=4, storage="memory")


def push_numbers(topic: thalweg.Topic, count: int, first: int = 0) -> None:
    """Event i goes to partition i mod 4."""
    with topic.producer() as producer:
        for i in range(first, first + count):
            producer.push({"i": i}, partition=i % 4)


def pull_until(
    members: list[thalweg.Consumer], done: Callable[[], bool]
) -> list[tuple[int, thalweg.Event]]:
    """Pulls from each in turn, until that is so: who got which events."""
    seen = []
    while not done():
        for index, member in enumerate(members):
            event = member.pull(timeout=0.02)
            if event is not None:
                seen.append((index, event))
    return seen


def test_one_member_reads_all_and_two_share(topic: thalweg.Topic) -> None:
    told: list[tuple[str, list[int]]] = []
    with topic.group(
        "analysis",
        on_assigned=lambda partitions: told.append(("assigned", partitions)),
        on_revoking=lambda partitions: told.append(("revoking", partitions)),
    ) as one:
        assert pull_until([one], lambda: sum(len(some) for _, some in told) >= 4) == []
        assert one.partitions == (0, 1, 2, 3)
        assert sorted(p for _, partitions in told for p in partitions) == [0, 1, 2, 3]
        assert {what for what, _ in told} == {"assigned"}
        with topic.group("analysis") as two:
            pull_until([one, two], lambda: len(one.partitions) == len(two.partitions) == 2)
            assert sorted(one.partitions + two.partitions) == [0, 1, 2, 3]
            [revoked] = [partitions for what, partitions in told if what == "revoking"]
            assert sorted(revoked) == list(two.partitions)
            push_numbers(topic, 40)
            events: list[tuple[int, thalweg.Event]] = []
            while len(events) < 40:
                for index, member in enumerate((one, two)):
                    events += [(index, event) for event in member.pull_batch(10, timeout=0.02)]
        by_partition: dict[int, list[int]] = {}
        owners: dict[int, set[int]] = {}
        for index, event in events:
            by_partition.setdefault(event.id.partition, []).append(event.metadata["i"])
            owners.setdefault(event.id.partition, set()).add(index)
        assert by_partition == {p: list(range(p, 40, 4)) for p in range(4)}
        assert all(len(who) == 1 for who in owners.values())
        # The second one has left, without a word of what it did.
        again = pull_until([one], lambda: one.partitions == (0, 1, 2, 3))
        assert {event.id.partition for _, event in again} <= set(revoked)


def test_a_partition_that_goes_is_handed_over_where_it_was_acknowledged(
    topic: thalweg.Topic,
) -> None:
    push_numbers(topic, 40)
    last: dict[int, thalweg.Event] = {}
    gone: list[int] = []

    def on_revoking(partitions: list[int]) -> None:
        gone.extend(partitions)
        for partition in partitions:
            if partition in last:
                last[partition].acknowledge()

    with topic.group("analysis", on_revoking=on_revoking) as one:
        first = []
        for _ in range(20):
            event = one.pull(timeout=60)
            assert event is not None
            last[event.id.partition] = event
            first.append(event.metadata["i"])
        with topic.group("analysis") as two:
            seen = pull_until([one, two], lambda: len(two.partitions) == 2)
            while len(seen) < 20:
                for index, member in enumerate((one, two)):
                    event = member.pull(timeout=0.02)
                    if event is not None:
                        seen.append((index, event))
            # Each comes once: those that one had acknowledged stayed with it.
            assert sorted(first + [event.metadata["i"] for _, event in seen]) == list(range(40))
            assert sorted(gone) == list(two.partitions)


def test_acknowledged_events_do_not_come_to_successors(topic: thalweg.Topic) -> None:
    push_numbers(topic, 8)
    with topic.group("analysis") as one:
        for _ in range(8):
            event = one.pull(timeout=60)
            assert event is not None
            event.acknowledge()
    push_numbers(topic, 4, first=8)
    with topic.group("analysis") as two:
        numbers = []
        for _ in range(4):
            event = two.pull(timeout=60)
            assert event is not None
            numbers.append(event.metadata["i"])
        assert sorted(numbers) == [8, 9, 10, 11]
        assert two.pull(timeout=0) is None


def test_what_a_callback_raises_the_pull_raises(topic: thalweg.Topic) -> None:
    push_numbers(topic, 4)

    def on_assigned(partitions: list[int]) -> None:
        raise KeyError("no detector for these")

    with topic.group("analysis", on_assigned=on_assigned) as one:
        with pytest.raises(KeyError, match="no detector"):
            one.pull(timeout=60)
        numbers = []
        while len(numbers) < 4:
            try:
                event = one.pull(timeout=60)
            except KeyError:
                continue
            assert event is not None
            numbers.append(event.metadata["i"])
        assert sorted(numbers) == [0, 1, 2, 3]


def test_a_successor_takes_over(topic: thalweg.Topic) -> None:
    push_numbers(topic, 4)
    first = topic.group("analysis", instance="node-0", session_timeout=1.0)
    assert first.pull(timeout=60) is not None
    with topic.group("analysis", instance="node-0") as second:
        assert sorted(second.pull(timeout=60).metadata["i"] for _ in range(4)) == [0, 1, 2, 3]  # type: ignore[union-attr]
        with pytest.raises(thalweg.MemberFenced):
            while True:
                first.pull(timeout=60)
    # Not closed: a flush of a fenced member ends with its timeout only.
    del first


def test_a_program_that_stays_away_leaves(topic: thalweg.Topic) -> None:
    lost: list[int] = []
    with topic.group("analysis", processing_timeout=0.3, on_lost=lost.extend) as lazy:
        pull_until([lazy], lambda: len(lazy.partitions) == 4)
        with topic.group("analysis") as other:
            pull_until([other], lambda: len(other.partitions) == 4)
            with pytest.raises(thalweg.MemberFenced):
                lazy.pull(timeout=60)
            pull_until([lazy, other], lambda: len(lazy.partitions) == 2)


def test_names_have_one_kind(topic: thalweg.Topic) -> None:
    with topic.group("analysis"), topic.queue("farm"):
        with pytest.raises(thalweg.InvalidArgument, match="analysis"):
            topic.queue("analysis")
        with pytest.raises(thalweg.InvalidArgument, match="farm"):
            topic.group("farm")
    with pytest.raises(thalweg.InvalidArgument, match="start"):
        topic.group("other", start="cursor")  # type: ignore[arg-type]


def test_partitions_outlive_a_crash_of_the_server(server: Any) -> None:
    with server.connect() as driver:
        topic = driver.create_topic("frames", partitions=4, durability="written")
        with topic.group("analysis") as one, topic.group("analysis") as two:
            pull_until([one, two], lambda: len(one.partitions) == len(two.partitions) == 2)
            before = (one.partitions, two.partitions)
            server.kill()
            server.start()
            push_numbers(topic, 8)
            seen: list[tuple[int, thalweg.Event]] = []
            while len(seen) < 8:
                for index, member in enumerate((one, two)):
                    event = member.pull(timeout=0.02)
                    if event is not None:
                        seen.append((index, event))
            assert all(event.id.partition in before[index] for index, event in seen)
