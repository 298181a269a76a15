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
