"""Queues: events one at a time, under leases, whoever dies."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import numpy as np
import pytest

import thalweg


def push_numbers(topic: thalweg.Topic, count: int) -> None:
    with topic.producer() as producer:
        producer.push_many([{"i": i} for i in range(count)])


def pull(consumer: thalweg.QueueConsumer) -> thalweg.QueueEvent:
    event = consumer.pull(timeout=60)
    assert event is not None
    return event


def dead_letters(driver: thalweg.Driver, topic: str, count: int) -> list[thalweg.Event]:
    with driver.open_topic(topic).consumer("coroner") as consumer:
        letters = []
        for _ in range(count):
            letter = consumer.pull(timeout=60)
            assert letter is not None
            letters.append(letter)
        return letters


def test_members_share_the_events(topic: thalweg.Topic) -> None:
    push_numbers(topic, 200)
    handled: list[int] = []
    with topic.queue("farm", prefetch=10) as one, topic.queue("farm", prefetch=10) as two:

        def work(consumer: thalweg.QueueConsumer) -> None:
            for event in consumer:
                with event:
                    handled.append(event.metadata["i"])
                if len(handled) >= 200:
                    one.close()
                    two.close()

        threads = [threading.Thread(target=work, args=(member,)) for member in (one, two)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
    assert sorted(handled) == list(range(200))
    with topic.queue("farm") as later:
        assert later.pull(timeout=0.2) is None


def test_a_settlement_is_durable_when_it_says_so(topic: thalweg.Topic) -> None:
    push_numbers(topic, 3)
    told = threading.Event()
    with topic.queue("farm") as consumer:
        event = pull(consumer)
        assert isinstance(event, thalweg.Event)
        assert (event.deliveries, event.settled, event.id.offset) == (1, False, 0)
        settlement = event.acknowledge()
        assert settlement.result(timeout=60) is None
        assert settlement.exception() is None and settlement.done() and event.settled
        # Once is enough: the event is out of this program's hands.
        again = event.acknowledge()
        assert isinstance(again.exception(timeout=60), thalweg.LeaseExpired)
        with pytest.raises(thalweg.LeaseExpired, match="lease"):
            event.extend().result(60)
        pull(consumer).acknowledge().add_done_callback(lambda _: told.set())
        assert told.wait(60)
        with pytest.raises(ValueError, match="delay"):
            pull(consumer).return_to_queue(-1)


def test_what_is_returned_or_let_go_of_comes_again(topic: thalweg.Topic) -> None:
    push_numbers(topic, 1)
    with topic.queue("farm") as consumer:
        pull(consumer).return_to_queue()
        assert pull(consumer).deliveries == 2  # And let go of at once.
        with pytest.raises(ZeroDivisionError), pull(consumer) as event:
            assert event.deliveries == 3
            1 / 0  # noqa: B018
        assert event.settled
        event = pull(consumer)
        assert event.deliveries == 4
        event.return_to_queue(delay=0.05).result(60)
        with pull(consumer) as event:
            assert event.deliveries == 5
            assert event.extend().result(60) is None
        assert consumer.pull(timeout=0) is None


def test_dead_letters_say_why(driver: thalweg.Driver, name: str) -> None:
    topic = driver.create_topic(name, storage="memory")
    with topic.producer() as producer:
        producer.push({"i": 0}, b"first", key="a", headers={"unit": "mm"})
        producer.push({"i": 1}, b"second")
    with topic.queue("farm", deliveries_max=2) as consumer:
        assert consumer.options == {
            "lease": 30.0,
            "deliveries_max": 2,
            "dead_letter_topic": f"{name}.dead",
            "ordered_by_key": False,
        }
        events = {event.metadata["i"]: event for event in (pull(consumer), pull(consumer))}
        events[0].reject("no such detector").result(60)
        events.pop(1).return_to_queue()
        with pytest.raises(RuntimeError), pull(consumer) as event:
            assert (event.metadata["i"], event.deliveries) == (1, 2)
            raise RuntimeError("the solver diverged")
        first, second = sorted(dead_letters(driver, f"{name}.dead", 2), key=lambda e: e.metadata["i"])
        assert consumer.pull(timeout=0) is None
    assert (first.metadata, bytes(first.data), first.key) == ({"i": 0}, b"first", b"a")
    headers = dict(first.headers)
    assert headers["unit"] == b"mm"
    assert headers["thalweg.reason"] == b"no such detector"
    assert (headers["thalweg.topic"], headers["thalweg.queue"]) == (name.encode(), b"farm")
    assert b"RuntimeError: the solver diverged" in dict(second.headers)["thalweg.reason"]
    assert dict(second.headers)["thalweg.deliveries"] == b"2"


def test_a_lease_that_expires_passes_the_event_on(topic: thalweg.Topic) -> None:
    push_numbers(topic, 1)
    with topic.queue("farm", lease=0.2) as one, topic.queue("farm") as two:
        assert two.options["lease"] == 0.2
        held = one.pull(timeout=60) or two.pull(timeout=60)
        assert held is not None
        # Nobody holds it any more when it comes again.
        again = None
        while again is None:
            again = one.pull(timeout=0.05) or two.pull(timeout=0.05)
        assert (again.id, again.deliveries) == (held.id, 2)
        with pytest.raises(thalweg.LeaseExpired):
            held.acknowledge().result(60)
        again.acknowledge().result(60)


def test_leases_are_extended_in_the_background(topic: thalweg.Topic) -> None:
    push_numbers(topic, 2)
    with (
        topic.queue("farm", lease=1, renew=True, prefetch=1) as slow,
        topic.queue("farm", lease=1, prefetch=1) as other,
    ):
        held = pull(slow)
        passed = pull(other)
        # The other one's event goes round, three leases long; this one stays. A lease is as long as
        # a machine may hold a program up.
        for deliveries in range(2, 7):
            again = pull(other)
            assert again.id == passed.id and again.deliveries >= deliveries
            again.return_to_queue(delay=0.6)
        held.acknowledge().result(60)


def test_data_selectors_and_allocators(topic: thalweg.Topic) -> None:
    frame = np.arange(200_000, dtype=np.uint16)
    with topic.producer() as producer:
        producer.push({"dtype": "uint16", "shape": [200_000]}, frame)
    buffers: list[Any] = []

    def select(metadata: Any, data: thalweg.DataView) -> thalweg.DataView:
        if not metadata["shape"]:
            raise KeyError("shape")
        return data.range(0, 2000)

    def allocate(metadata: Any, view: thalweg.DataView) -> Any:
        buffers.append(np.empty(view.nbytes // 2, np.uint16))
        return buffers[-1]

    with topic.queue("whole") as consumer, pull(consumer) as event:
        assert np.array_equal(event.numpy(), frame)
        assert bytes(topic.read_data(event)) == frame.tobytes()
    with topic.queue("part", data=select, allocator=allocate) as consumer:
        with pull(consumer) as event:
            assert event.buffer is buffers[0] and np.array_equal(buffers[0], frame[:1000])
        with topic.producer() as producer:
            producer.push({"shape": None}, b"data")
        with pytest.raises(KeyError, match="shape"):
            consumer.pull(timeout=60)
    with topic.queue("none", data=False) as consumer, pull(consumer) as event:
        assert event.data_size == frame.nbytes
        with pytest.raises(thalweg.exceptions.InvalidArgument, match="read_data"):
            event.data  # noqa: B018


def test_events_of_a_key_come_one_at_a_time(topic: thalweg.Topic) -> None:
    with topic.producer() as producer:
        for i in range(4):
            producer.push({"i": i}, key="ab"[i % 2])
    with topic.queue("farm", ordered_by_key=True) as consumer:
        first, second = pull(consumer), pull(consumer)
        assert {first.key, second.key} == {b"a", b"b"}
        assert consumer.pull(timeout=0.1) is None
        first.acknowledge()
        third = pull(consumer)
        assert third.key == first.key
        second.acknowledge()
        third.acknowledge()
        pull(consumer).acknowledge()


def test_a_successor_takes_over(topic: thalweg.Topic) -> None:
    push_numbers(topic, 1)
    first = topic.queue("farm", instance="worker-0")
    held = pull(first)
    with topic.queue("farm", instance="worker-0") as second:
        with pull(second) as event:
            assert event.id == held.id
        with pytest.raises(thalweg.MemberFenced):
            first.pull(timeout=60)
    first.close()


def test_a_program_that_stays_away_leaves(topic: thalweg.Topic) -> None:
    push_numbers(topic, 1)
    with topic.queue("farm", processing_timeout=0.2) as lazy:
        held = pull(lazy)
        with topic.queue("farm") as other, pull(other) as event:
            # It comes when the first has left by itself.
            assert event.id == held.id
        with pytest.raises(thalweg.MemberFenced):
            lazy.pull(timeout=60)
        push_numbers(topic, 1)
        pull(lazy).acknowledge().result(60)
        with pytest.raises(thalweg.LeaseExpired):
            held.acknowledge().result(60)


def test_where_a_new_queue_begins(topic: thalweg.Topic) -> None:
    push_numbers(topic, 5)
    with topic.queue("a") as consumer:
        assert pull(consumer).metadata["i"] == 0
    with pytest.raises(thalweg.InvalidArgument, match="start"):
        topic.queue("b", start="cursor")  # type: ignore[arg-type]
    with topic.queue("c", start="latest") as consumer:
        assert consumer.pull(timeout=0.1) is None
        push_numbers(topic, 1)
        pull(consumer).acknowledge()
    with pytest.raises(thalweg.InvalidArgument, match="lease_ms"):
        topic.queue("d", lease=0.0)
    with topic.consumer("independent") as independent:
        event = independent.pull(60)
        assert event is not None
        event.acknowledge()
        independent.flush()
        with pytest.raises(thalweg.InvalidArgument, match="independent"):
            topic.queue("independent")


def test_coroutines(topic: thalweg.Topic) -> None:
    async def work(consumer: thalweg.QueueConsumer) -> list[int]:
        seen = []
        async for event in consumer:
            seen.append(event.metadata["i"])
            await event.acknowledge()
            if len(seen) == 100:
                break
        with pytest.raises(thalweg.LeaseExpired):
            await event.acknowledge()
        return seen

    async def main() -> None:
        with topic.producer() as producer, topic.queue("farm") as consumer:
            task = asyncio.create_task(work(consumer))
            for i in range(100):
                await producer.push({"i": i})
            assert await asyncio.wait_for(task, 60) == list(range(100))

    asyncio.run(main())


def test_closing_ends_iteration_and_keeps_settlements(topic: thalweg.Topic) -> None:
    push_numbers(topic, 10)
    consumer = topic.queue("farm")
    seen = []
    settlements = []
    for event in consumer:
        seen.append(event.id.offset)
        settlements.append(event.acknowledge())
        if len(seen) == 5:
            kept = pull(consumer)
            consumer.close()
    assert seen == list(range(5)) and consumer.closed
    assert all(settlement.done() for settlement in settlements)
    consumer.close()
    with pytest.raises(thalweg.Closed):
        consumer.pull(timeout=0)
    with pytest.raises(thalweg.LeaseExpired):
        kept.acknowledge().result(60)
    with topic.queue("farm") as other:
        events = [pull(other) for _ in range(5)]
        assert sorted(event.id.offset for event in events) == list(range(5, 10))
        # What only lay ready there was not delivered.
        assert [event.deliveries for event in events if event.id != kept.id] == [1] * 4


def test_closing_the_driver_leaves_the_queue(server: Any) -> None:
    with server.connect() as driver:
        topic = driver.create_topic("tasks")
        push_numbers(topic, 3)
        consumer = topic.queue("farm", session_timeout=600.0)
        pull(consumer).acknowledge()
    with pytest.raises(thalweg.Closed):
        consumer.pull(timeout=0)
    with server.connect() as driver, driver.open_topic("tasks").queue("farm") as consumer:
        events = consumer.pull_batch(1, timeout=60) + [pull(consumer)]
        assert [event.id.offset for event in events] == [1, 2]


def test_a_program_that_forgets_to_close_still_ends(shared_server: Any, name: str, run_script: Any) -> None:
    code = """
import sys
import thalweg

driver = thalweg.Driver(sys.argv[1])
topic = driver.create_topic(sys.argv[2], storage="memory")
topic.producer().push({}).result()
consumer = topic.queue("farm")
event = consumer.pull()
print(event.acknowledge())
"""
    done = run_script(code, shared_server.group_file, name)
    assert done.returncode == 0 and done.stderr == "", done.stderr
    assert done.stdout == "Future(pending)\n"
    with shared_server.connect() as driver, driver.open_topic(name).queue("farm") as consumer:
        assert consumer.pull(timeout=0.1) is None


def test_leases_outlive_a_crash_of_the_server(server: Any) -> None:
    with server.connect() as driver:
        topic = driver.create_topic("tasks", durability="written")
        push_numbers(topic, 10)
        with topic.queue("farm", prefetch=5) as consumer:
            pull(consumer).acknowledge().result(60)
            held = pull(consumer)
            server.kill()
            server.start()
            held.acknowledge().result(60)
            left = []
            while len(left) < 8:
                with pull(consumer) as event:
                    left.append(event.metadata["i"])
            assert sorted(left) == list(range(2, 10))


def test_parent_and_child_are_two_members(shared_server: Any, name: str, run_script: Any) -> None:
    code = """
import os, sys
import thalweg

driver = thalweg.Driver(sys.argv[1], connect_timeout=60)
topic = driver.create_topic(sys.argv[2], storage="memory")
with topic.producer() as producer:
    producer.push_many([{"i": i} for i in range(2)])
consumer = topic.queue("farm", prefetch=1)
event = consumer.pull(timeout=60)
child = os.fork()
if child == 0:
    status = 1
    try:
        try:
            event.acknowledge().result()
        except thalweg.Forked:
            print("forked")
        del event
        with consumer.pull(timeout=60) as event:
            print("child", event.id.offset, event.deliveries)
        consumer.close()
        status = 0
    finally:
        sys.stdout.flush()
        os._exit(status)
assert os.waitpid(child, 0)[1] == 0
event.acknowledge().result(60)
print("parent", event.id.offset)
print(consumer.pull(timeout=0.1))
"""
    done = run_script(code, shared_server.group_file, name)
    assert done.stdout == "forked\nchild 1 1\nparent 0\nNone\n", done.stderr
