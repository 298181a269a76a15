"""Timeouts: numbers of seconds from 0, infinity among them."""

from __future__ import annotations

import math
from typing import Any

import pytest

import thalweg


@pytest.mark.parametrize("ever", [math.inf, 1e300, 1e12])
def test_a_timeout_without_an_end_is_for_ever(shared_server: Any, name: str, ever: float) -> None:
    driver = thalweg.Driver(shared_server.group_file, connect_timeout=ever, request_timeout=ever)
    topic = driver.create_topic(f"{name}-{ever}", storage="memory")
    producer = topic.producer(
        ack_timeout=ever, block_timeout=ever, budget_bytes=10_000, linger_ms=ever
    )
    # More than the budget: later ones wait for the acks of earlier ones.
    futures = [producer.push({"i": i}, bytes(1000)) for i in range(50)]
    producer.flush(timeout=ever)
    assert futures[0].result(timeout=ever).offset == 0
    assert futures[0].exception(timeout=ever) is None
    consumer = topic.consumer("c")
    event = consumer.pull(timeout=ever)
    assert event is not None and event.metadata == {"i": 0}
    assert len(consumer.pull_batch(3, timeout=ever)) == 3
    event.acknowledge()
    consumer.flush(timeout=ever)
    assert topic.fetch(0, 0, timeout=ever)[0].id == event.id
    consumer.close(timeout=ever)
    producer.close(timeout=ever)
    driver.close(timeout=ever)


@pytest.mark.parametrize("wrong", [-1.0, math.nan])
def test_a_timeout_that_is_none_is_refused(topic: thalweg.Topic, wrong: float) -> None:
    with topic.consumer("c") as consumer, topic.producer() as producer:
        for call in (
            lambda: consumer.pull(timeout=wrong),
            lambda: consumer.flush(timeout=wrong),
            lambda: producer.flush(timeout=wrong),
            lambda: topic.fetch(0, 0, timeout=wrong),
            lambda: topic.producer(ack_timeout=wrong),
            lambda: topic.producer(block_timeout=wrong),
        ):
            with pytest.raises(ValueError, match="is a number of seconds from 0"):
                call()
