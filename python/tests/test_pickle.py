"""Drivers, topics, producers and consumers that are pickled."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

import thalweg


def copy(thing: Any) -> Any:
    return pickle.loads(pickle.dumps(thing))


def pull(consumer: Any) -> Any:
    event = consumer.pull(timeout=60)
    assert event is not None
    return event


def test_copies_of_a_driver_are_one(driver: thalweg.Driver, name: str) -> None:
    driver.create_topic(name, storage="memory")
    first, second = copy(driver), copy(copy(driver))
    assert isinstance(first, thalweg.Driver)
    assert {topic.name for topic in first.list_topics()} >= {name}
    second.close()
    assert first.closed and not driver.closed
    # One that was closed is not given out again.
    assert not copy(driver).closed


def test_nothing_is_opened_before_it_is_used(server: Any) -> None:
    with server.connect(client_name="the original") as driver:
        topic = driver.create_topic("t")
        copies = [copy(topic.producer()), copy(topic.queue("farm")), copy(topic), copy(driver)]
        kinds = (thalweg.Producer, thalweg.QueueConsumer, thalweg.Topic, thalweg.Driver)
        for each, kind in zip(copies, kinds, strict=True):
            assert isinstance(each, kind) and repr(each) == f"{kind.__name__}(not opened yet)"
            # Whoever passes it on does not open it either.
            assert repr(copy(each)) == repr(each)
        clients = driver.status()["sessions"]
        assert len(clients) == 1
        copies[0].push({"i": 0}).result(60)
        assert copies[1].pull(timeout=60).metadata == {"i": 0}
        assert repr(copies[0]).startswith("Producer(") and copies[2].name == "t"
        assert len(driver.status()["sessions"]) == 2
        copies[3].close()


def test_a_topic_is_the_one_that_has_the_name(driver: thalweg.Driver, name: str) -> None:
    before = driver.create_topic(name, storage="memory")
    pickled = pickle.dumps(before)
    assert pickle.loads(pickled).id == before.id
    driver.delete_topic(name)
    with pytest.raises(thalweg.UnknownTopic):
        pickle.loads(pickled).producer()
    after = driver.create_topic(name, storage="memory")
    assert pickle.loads(pickled).id == after.id


def test_a_producer_is_another_one_of_its_options(topic: thalweg.Topic) -> None:
    producer = topic.producer(batch=3, linger_ms=60_000)
    pickled = pickle.dumps(producer)
    twin = pickle.loads(pickled)
    assert twin.id == pickle.loads(pickled).id != producer.id
    assert copy(topic.producer()).id != twin.id
    futures = [twin.push({"i": i}) for i in range(3)]
    # The batch is full: nobody waits for a minute.
    assert [future.exception(60) for future in futures] == [None] * 3
    twin.close()
    again = pickle.loads(pickled)
    assert len(again.id) == 32
    again.push({"i": 3}).result(60)
    with topic.consumer("reader") as consumer:
        assert [pull(consumer).metadata["i"] for _ in range(4)] == list(range(4))


def only_even(metadata: Any, data: thalweg.DataView) -> thalweg.DataView | None:
    return data if metadata["i"] % 2 == 0 else None


def test_a_consumer_keeps_its_name_and_selector(topic: thalweg.Topic) -> None:
    with topic.producer() as producer:
        producer.push_many([{"i": i} for i in range(4)], [b"data"] * 4)
    consumer = topic.consumer("reader", data=only_even)
    event = pull(consumer)
    event.acknowledge()
    consumer.close()
    twin = copy(consumer)
    assert twin.name == "reader" and twin.topic.id == topic.id
    assert [bytes(pull(twin).data) for _ in range(3)] == [b"", b"data", b""]
    twin.close()


def test_a_consumer_keeps_how_it_reads(topic: thalweg.Topic) -> None:
    options: dict[str, Any] = {"partitions": [0], "credit_bytes": 1 << 20, "merge_wait": 0.25, "inline_along": True}
    with topic.consumer("reader", data=only_even, **options) as consumer:
        again = consumer.__reduce__()[1][2]
        assert {name: again[name] for name in options} == options
    with topic.consumer("viewer", latest=True) as viewer:
        assert viewer.__reduce__()[1][2]["latest"] is True


def test_groups_and_queues_get_another_member(topic: thalweg.Topic) -> None:
    with topic.producer() as producer:
        producer.push({"i": 0})
    with topic.queue("farm", lease=7.0, prefetch=1) as queue, copy(queue) as twin:
        assert twin.options == queue.options and twin.options["lease"] == 7.0
        event = None
        while event is None:
            event = queue.pull(timeout=0.05) or twin.pull(timeout=0.05)
        event.acknowledge().result(60)
    with topic.group("share") as group:
        assert pull(group).metadata == {"i": 0}
        with copy(group) as twin:
            assert twin.name == "share" and twin.partitions == ()
    with topic.requester() as requester, copy(requester) as twin:
        assert isinstance(twin, thalweg.Requester) and twin is not requester


def test_what_is_one_program_s_alone(topic: thalweg.Topic, tmp_path: Any) -> None:
    for alone, why in (
        (topic.producer("named"), "a producer with name="),
        (topic.producer(journal=tmp_path / "journal"), "a producer with journal="),
        (topic.queue("farm", instance="one"), "a queue with instance="),
        (topic.group("share", instance="one"), "a group with instance="),
    ):
        with alone, pytest.raises(TypeError, match=why):
            pickle.dumps(alone)
    with thalweg.Driver.embedded(tmp_path / "data") as driver:
        with pytest.raises(TypeError, match="embedded"):
            pickle.dumps(driver.create_topic("t").producer())
