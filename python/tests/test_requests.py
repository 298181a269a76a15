"""Requests and their replies, broadcasts and who is missing."""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import thalweg

Answer = Callable[[thalweg.QueueEvent], object]


def pull(consumer: Any) -> Any:
    event = consumer.pull(timeout=60)
    assert event is not None
    return event


def serve(consumer: thalweg.QueueConsumer, answer: Answer) -> None:
    for event in consumer:
        answer(event)


@pytest.fixture
def worker(topic: thalweg.Topic) -> Iterator[Callable[[Answer], None]]:
    """Starts a worker of the topic, which ends with the test."""
    started: list[tuple[thalweg.QueueConsumer, threading.Thread]] = []

    def start(answer: Answer) -> None:
        consumer = topic.queue("work")
        thread = threading.Thread(target=serve, args=(consumer, answer))
        thread.start()
        started.append((consumer, thread))

    yield start
    for consumer, thread in started:
        consumer.close()
        thread.join(60)


def echo(event: thalweg.QueueEvent) -> None:
    event.reply({"got": event.metadata}, event.data)


def test_each_request_gets_its_reply(topic: thalweg.Topic, worker: Any) -> None:
    worker(echo)
    frame = np.arange(100_000, dtype=np.uint32)
    with topic.requester() as requester:
        futures = [requester.request({"i": i}) for i in range(100)]
        large = requester.request({"shape": [400, 250]}, frame, headers={"unit": "counts"})
        for i, future in enumerate(futures):
            reply = future.result(timeout=60)
            assert isinstance(reply, thalweg.Event)
            assert reply.metadata == {"got": {"i": i}}
            assert future.done() and future.exception() is None
            # The same event, each time that it is asked for.
            assert future.result() is reply
        assert (large.result(60).numpy(np.uint32) == frame).all()
        assert requester.waiting == 0
        assert dict(reply.headers)["thalweg.replier"] == b"work"
        with pytest.raises(ValueError, match="consumer"):
            reply.acknowledge()
        with pytest.raises(ValueError, match="consumer"):
            reply.reply()
    assert requester.closed and requester.topic is topic
    with pytest.raises(thalweg.Closed):
        requester.request({})


def test_a_reply_says_when_it_is_durable_and_settles(topic: thalweg.Topic) -> None:
    with topic.queue("work", deliveries_max=0) as consumer, topic.requester() as requester:
        asked = requester.request([1, 2])
        event = pull(consumer)
        assert event.metadata == [1, 2]
        replied = event.reply({"sum": 3})
        assert replied.result(60) == asked.result(60).id
        assert event.settled
        assert isinstance(event.acknowledge().exception(60), thalweg.LeaseExpired)
        with topic.producer() as producer:
            producer.push({}).result(60)
        plain = pull(consumer)
        with pytest.raises(thalweg.InvalidEvent, match="no request"):
            plain.reply({})
        assert not plain.settled
        plain.acknowledge().result(60)
        assert consumer.pull(timeout=0) is None


def test_a_request_that_nobody_answers_ends_at_its_deadline(topic: thalweg.Topic) -> None:
    told = threading.Event()
    with topic.queue("work") as consumer, topic.requester() as requester:
        future = requester.request({}, timeout=0.1)
        future.add_done_callback(lambda _: told.set())
        with pytest.raises(thalweg.Timeout, match="request"):
            future.result(60)
        assert told.wait(60)
        # The reply that comes after all is nobody's, and no error.
        pull(consumer).reply({}).result(60)
        slow = requester.request({})
        assert not slow.done()
        with pytest.raises(thalweg.Timeout):
            slow.result(0.05)
        pull(consumer).reply({"late": True}).result(60)
        assert slow.result(60).metadata == {"late": True}
        with pytest.raises(ValueError, match="timeout"):
            requester.request({}, timeout=-1)
        with pytest.raises(TypeError):
            requester.request({}, key=1)  # type: ignore[arg-type]


def test_closing_ends_what_is_under_way(shared_server: Any, name: str) -> None:
    with shared_server.connect() as driver:
        topic = driver.create_topic(name, storage="memory")
        requester = topic.requester()
        future = requester.request({})
        requester.close()
        with pytest.raises(thalweg.Closed):
            future.result(60)
        left = topic.requester().request({})
        gc.collect()
        # The future keeps its requester.
        assert not left.done()
    with pytest.raises(thalweg.Closed):
        left.result(60)


def test_closing_does_not_wait_for_a_server_that_is_not_heard_of(server: Any) -> None:
    with server.connect() as driver:
        topic = driver.create_topic("tasks", storage="memory")
        requester = topic.requester()
        server.pause()
        future = requester.request({})
        with pytest.raises(thalweg.Timeout):
            requester.close(timeout=0.2)
        with pytest.raises(thalweg.Closed):
            future.result(60)
        requester.close()
        server.go_on()


def test_replies_are_found_again_after_a_restart(server: Any) -> None:
    with server.connect() as driver:
        topic = driver.create_topic("tasks", durability="written")
        with topic.queue("work") as consumer, topic.requester() as requester:
            first, second = requester.request({"i": 1}), requester.request({"i": 2})
            one = pull(consumer)
            one.reply(one.metadata)
            assert first.result(60).metadata == {"i": 1}
            server.kill()
            server.start()
            two = pull(consumer)
            two.reply(two.metadata)
            assert second.result(60).metadata == {"i": 2}


def test_a_broadcast_gathers_and_says_who_is_missing(topic: thalweg.Topic, shared_server: Any) -> None:
    with topic.requester() as requester:
        nobody = requester.broadcast({}).result(60)
        assert nobody == thalweg.Gathered(replies={}, missing=())
        with (
            shared_server.connect() as other,
            topic.consumer("viewer", start="latest") as here,
            other.open_topic(topic.name).consumer("viewer", start="latest") as there,
            topic.group("analysis", start="latest") as member,
            topic.queue("silent"),
        ):
            asked = requester.broadcast({"stop": True}, b"data", timeout=60, at_least=3)
            for consumer in (here, there, member):
                event = pull(consumer)
                assert (event.metadata, bytes(event.data)) == ({"stop": True}, b"data")
                assert event.reply({"name": consumer.name}).result(60).offset >= 0
            gathered = asked.result(60)
            assert gathered.missing == ("silent",)
            assert gathered.replies["analysis"].metadata == {"name": "analysis"}
            viewers = [replier for replier in gathered.replies if replier.startswith("viewer/")]
            assert len(viewers) == 2 and len(gathered.replies) == 3
            # At the deadline what came is the answer.
            asked = requester.broadcast({}, timeout=0.5)
            pull(here).reply()
            gathered = asked.result(60)
            assert len(gathered.replies) <= 1 and "silent" in gathered.missing
            assert len(gathered.replies) + len(gathered.missing) == 4


def test_raw_metadata_is_bytes_both_ways(driver: thalweg.Driver, name: str) -> None:
    topic = driver.create_topic(name, storage="memory", serializer="raw")
    with topic.queue("work") as consumer, topic.requester(data=False) as requester:
        asked = requester.request(b"\x00ask")
        event = pull(consumer)
        event.reply(event.metadata + b"ed", b"data")
        reply = asked.result(60)
        assert (reply.metadata, reply.data_size) == (b"\x00asked", 4)
        with pytest.raises(thalweg.InvalidArgument, match="were not read"):
            bytes(reply.data)


def test_requests_in_coroutines(topic: thalweg.Topic) -> None:
    async def work(consumer: thalweg.QueueConsumer) -> None:
        async for event in consumer:
            if event.metadata["i"] == 13:
                event.acknowledge()
                continue
            await event.extend()
            await event.reply({"i": event.metadata["i"] ** 2})

    async def ask(requester: thalweg.Requester, i: int) -> int:
        reply = await requester.request({"i": i}, timeout=0.5 if i == 13 else 60)
        return int(reply.metadata["i"])

    async def main() -> None:
        with topic.queue("work") as consumer, topic.requester() as requester:
            worker = asyncio.create_task(work(consumer))
            asked = [ask(requester, i) for i in range(50)]
            squares = await asyncio.gather(*asked, return_exceptions=True)
            refused = squares.pop(13)
            assert isinstance(refused, thalweg.Timeout)
            assert squares == [i**2 for i in range(50) if i != 13]
            # Several tasks may wait for one future.
            future = requester.request({"i": 7})

            async def wait() -> Any:
                return (await future).metadata

            assert await asyncio.gather(wait(), wait()) == [{"i": 49}] * 2
            gathered = await requester.broadcast({"i": 3})
            assert gathered.replies["work"].metadata == {"i": 9} and not gathered.missing
            consumer.close()
            await worker

    async def bounded() -> None:
        await asyncio.wait_for(main(), 100)

    asyncio.run(bounded())


def test_a_forked_child_asks_by_itself(shared_server: Any, name: str, run_script: Any) -> None:
    code = """
import os, sys
import thalweg

driver = thalweg.Driver(sys.argv[1], connect_timeout=60)
topic = driver.create_topic(sys.argv[2], storage="memory")
consumer, requester = topic.queue("work"), topic.requester()
child = os.fork()
if child == 0:
    status = 1
    try:
        try:
            requester.request({})
        except thalweg.Forked:
            print("forked")
        with topic.requester() as own:
            print(own.request({"who": "child"}).result(60).metadata)
        status = 0
    finally:
        sys.stdout.flush()
        os._exit(status)
event = consumer.pull(timeout=60)
event.reply(event.metadata)
assert os.waitpid(child, 0)[1] == 0
consumer.close()
requester.close()
"""
    done = run_script(code, shared_server.group_file, name)
    assert done.stdout == "forked\n{'who': 'child'}\n", done.stderr


def test_a_request_that_is_left_does_not_keep_the_program(shared_server: Any, name: str, run_script: Any) -> None:
    code = """
import sys
import thalweg

driver = thalweg.Driver(sys.argv[1])
topic = driver.create_topic(sys.argv[2], storage="memory")
print(topic.requester().request({}))
kept = topic.requester()
left = kept.request({})
"""
    done = run_script(code, shared_server.group_file, name)
    assert done.returncode == 0 and done.stderr == "", done.stderr
    assert done.stdout == "Future(pending)\n"
