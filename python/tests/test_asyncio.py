"""Futures and consumers in coroutines."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import thalweg


def run(coroutine: Any) -> Any:
    async def bounded() -> Any:
        return await asyncio.wait_for(coroutine, 100)

    return asyncio.run(bounded())


def test_a_future_is_awaited(topic: thalweg.Topic) -> None:
    async def main() -> None:
        with topic.producer() as producer:
            assert (await producer.push({})).offset == 0
            futures = [producer.push({"i": i}) for i in range(100)]

            async def wait_for(future: thalweg.Future) -> thalweg.EventId:
                return await future

            ids = await asyncio.gather(*map(wait_for, futures))
            assert [id.offset for id in ids] == list(range(1, 101))
            # Once more, now that all are there.
            assert [await future for future in futures] == ids

    run(main())


def test_awaiting_sends_a_batch_that_waits_for_more(topic: thalweg.Topic) -> None:
    async def main() -> None:
        with topic.producer(batch=1000) as producer:
            assert (await producer.push({})).offset == 0

    run(main())


def test_the_error_of_a_push_is_raised(topic: thalweg.Topic) -> None:
    async def main() -> None:
        first = topic.producer("daq")
        with topic.producer("daq") as second:
            await second.push({})
            with pytest.raises(thalweg.ProducerFenced):
                await first.push({})

    run(main())


def test_events_are_iterated_while_others_work(topic: thalweg.Topic) -> None:
    async def consume(consumer: thalweg.Consumer) -> list[int]:
        seen = []
        async for event in consumer:
            seen.append(event.metadata["i"])
            if len(seen) == 300:
                break
        return seen

    async def produce(producer: thalweg.Producer) -> None:
        for i in range(300):
            future = producer.push({"i": i})
            if i % 30 == 0:
                await future

    async def main() -> None:
        with topic.producer() as producer, topic.consumer("viewer") as consumer:
            seen, _ = await asyncio.gather(consume(consumer), produce(producer))
            assert seen == list(range(300))

    run(main())


def test_closing_ends_async_iteration(topic: thalweg.Topic) -> None:
    async def main() -> None:
        consumer = topic.consumer("viewer")

        async def iterate() -> int:
            return len([event async for event in consumer])

        task = asyncio.create_task(iterate())
        await asyncio.sleep(0)
        consumer.close()
        assert await task == 0

    run(main())


def test_cancelling_a_wait_loses_nothing(topic: thalweg.Topic) -> None:
    async def main() -> None:
        with topic.producer() as producer, topic.consumer("viewer") as consumer:
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(consumer.__anext__(), 0.01)
            await producer.push({"i": 1})
            event = await consumer.__anext__()
            assert event.metadata == {"i": 1}

    run(main())


def test_resources_are_closed_without_blocking_the_loop(shared_server: Any, name: str) -> None:
    async def main() -> None:
        async with shared_server.connect() as driver:
            topic = driver.create_topic(name, storage="memory")
            async with topic.producer() as producer:
                producer.push({"i": 0})
            async with topic.queue("farm") as worker, topic.requester() as requester:
                event = await anext(worker)
                settlement = event.acknowledge()
            async with topic.consumer("viewer") as consumer:
                (await anext(consumer)).acknowledge()
        assert settlement.done() and settlement.exception() is None
        assert all(one.closed for one in (producer, worker, requester, consumer, driver))
        # What was acknowledged is durable.
        with shared_server.connect() as driver:
            topic = driver.open_topic(name)
            assert [cursor.offset for cursor in driver.cursors(topic, "viewer")] == [1]
            with topic.queue("farm") as worker:
                assert worker.pull(timeout=0.1) is None

    run(main())


def test_the_members_of_a_group_share_in_coroutines(driver: thalweg.Driver, name: str) -> None:
    topic = driver.create_topic(name, partitions=4, storage="memory")

    async def wait_for(future: thalweg.Future) -> thalweg.EventId:
        return await future

    async def main() -> None:
        assigned: list[int] = []
        seen: list[int] = []

        async def read(member: thalweg.Consumer) -> None:
            async for event in member:
                seen.append(event.metadata["i"])
                event.acknowledge()
                if len(seen) == 40:
                    one.close()
                    two.close()

        async with (
            topic.group("analysis", on_assigned=assigned.extend) as one,
            topic.group("analysis", on_assigned=assigned.extend) as two,
            topic.producer() as producer,
        ):
            readers = asyncio.gather(read(one), read(two))
            while not (len(one.partitions) == len(two.partitions) == 2):
                await asyncio.sleep(0)
            await asyncio.gather(
                *(wait_for(producer.push({"i": i}, partition=i % 4)) for i in range(40))
            )
            await readers
        assert sorted(seen) == list(range(40))
        assert set(assigned) == set(range(4))

    run(main())


def test_an_event_of_a_queue_is_settled_in_a_coroutine(topic: thalweg.Topic) -> None:
    async def main() -> None:
        async with topic.producer() as producer, topic.queue("farm", prefetch=1) as worker:
            producer.push_many([{"i": i} for i in range(3)])
            with pytest.raises(asyncio.TimeoutError):
                async with asyncio.timeout(0.2):
                    async for event in worker:
                        await event.extend()
                        if event.metadata["i"] == 1:
                            await event.return_to_queue(delay=0.0)
                            break
                        await event.acknowledge()
                    await asyncio.sleep(60)
            # Given up while it waited: nothing is lost by it.
            left = sorted([(await anext(worker)).metadata["i"]])
            assert left == [1]

    run(main())
