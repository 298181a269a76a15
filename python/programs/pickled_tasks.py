"""What runs in other processes in the tests of pickled producers and consumers."""

from __future__ import annotations

import os
from typing import Any


def push_some(producer: Any, task: int, count: int) -> tuple[int, str]:
    """Pushes events, and says in which process and as which producer."""
    for i in range(count):
        producer.push({"task": task, "i": i, "pid": os.getpid()}, bytes(100_000))
    # A worker may be killed as soon as its task is done.
    producer.flush()
    return os.getpid(), producer.id


def work_off(consumer: Any, producer: Any) -> int:
    """A worker of a task farm."""
    count = 0
    while (event := consumer.pull(timeout=2)) is not None:
        with event:
            producer.push({"pid": os.getpid(), **event.metadata}).result(60)
        count += 1
    return count


def read_all(consumer: Any, count: int) -> list[int]:
    seen = []
    for _ in range(count):
        event = consumer.pull(timeout=60)
        seen.append(event.metadata["i"])
        event.acknowledge()
    consumer.flush()
    return seen
