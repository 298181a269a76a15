"""A worker whose job ends takes nothing new and gives back what it has."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta, timezone
from typing import Any

import thalweg
from thalweg.jobs import winding_down_on

WORKER = """
import signal, sys, time
import thalweg
from thalweg.jobs import winding_down_on

with thalweg.Driver(sys.argv[1]) as driver:
    with driver.open_topic(sys.argv[2]).queue("farm", prefetch=10, wind_down=2) as queue:
        with winding_down_on(signal.SIGTERM, queue, within=float(sys.argv[4])):
            for event in queue:
                print("has", event.metadata["i"], flush=True)
                with event:
                    time.sleep(float(sys.argv[3]))
        assert queue.winding_down
print("over", flush=True)
"""


def push_numbers(topic: thalweg.Topic, count: int) -> None:
    with topic.producer() as producer:
        producer.push_many([{"i": i} for i in range(count)])


@contextmanager
def worker(
    shared_server: Any, topic: thalweg.Topic, seconds: float, within: float = 20.0, end: str = ""
) -> Iterator[subprocess.Popen[str]]:
    """A process that handles each event for so long."""
    environment = {**os.environ, "SLURM_JOB_END_TIME": end}
    words = [str(shared_server.group_file), topic.name, str(seconds), str(within)]
    process = subprocess.Popen(
        [sys.executable, "-c", WORKER, *words],
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def said(process: subprocess.Popen[str]) -> list[str]:
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 0
    return output.split("\n")[:-1]


def rest(topic: thalweg.Topic, count: int) -> dict[int, int]:
    """The next events, and how often each was delivered."""
    found: dict[int, int] = {}
    with topic.queue("farm") as queue:
        while len(found) < count:
            event = queue.pull(timeout=60)
            assert event is not None
            with event:
                found[event.metadata["i"]] = event.deliveries
    return found


def test_a_worker_goes_home_before_its_job_ends(
    shared_server: Any, topic: thalweg.Topic
) -> None:
    push_numbers(topic, 1000)
    end = str(int(time.time()) + 5)
    with worker(shared_server, topic, 0.05, end=end) as process:
        lines = said(process)
    assert lines[-1] == "over"
    handled = {int(line.split()[1]) for line in lines[:-1]}
    left = rest(topic, 1000 - len(handled))
    # Nothing was lost or counted, and what was begun was finished.
    assert set(left) == set(range(1000)) - handled
    assert set(left.values()) <= {1}


def test_sigterm_lets_a_worker_finish_what_it_is_at(
    shared_server: Any, topic: thalweg.Topic
) -> None:
    push_numbers(topic, 20)
    with worker(shared_server, topic, 0.5) as process:
        assert process.stdout is not None
        assert process.stdout.readline().startswith("has")
        process.send_signal(signal.SIGTERM)
        lines = said(process)
    assert lines[-1] == "over"
    assert set(rest(topic, 20 - len(lines)).values()) == {1}


def test_what_takes_too_long_goes_to_others_uncounted(
    shared_server: Any, topic: thalweg.Topic
) -> None:
    push_numbers(topic, 1)
    with worker(shared_server, topic, 600, within=0.5) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "has 0\n"
        process.send_signal(signal.SIGTERM)
        # The worker still sleeps, and its lease would last for 30 s.
        assert rest(topic, 1) == {0: 1}
        assert process.poll() is None


def test_an_end_can_be_given_and_not_asked_for(topic: thalweg.Topic) -> None:
    push_numbers(topic, 3)
    soon = datetime.now(timezone.utc) + timedelta(seconds=30)
    with topic.queue("farm", job_end=soon, wind_down=60) as queue:
        assert list(queue) == []
        assert queue.winding_down and queue.pull() is None
    with topic.queue("farm", job_end=time.time() + 3600) as queue:
        event = queue.pull(timeout=60)
        assert event is not None and not queue.winding_down
        queue.wind_down()
        assert queue.pull() is None
        event.acknowledge().result(60)
    assert rest(topic, 2) == {1: 1, 2: 1}


def test_async_iteration_ends_too(topic: thalweg.Topic) -> None:
    push_numbers(topic, 2)

    async def work() -> list[int]:
        handled = []
        with topic.queue("farm") as queue:
            async for event in queue:
                with event:
                    handled.append(event.metadata["i"])
                queue.wind_down()
        return handled

    assert asyncio.run(work()) == [0]


def test_a_signal_ends_async_iteration_and_the_programs_own_handler_is_called(
    topic: thalweg.Topic,
) -> None:
    heard = []

    async def work() -> list[int]:
        handled = []
        async with topic.queue("farm") as queue:
            with winding_down_on(signal.SIGUSR1, queue):
                async for event in queue:
                    with event:
                        handled.append(event.metadata["i"])
                    # It comes while the loop has nothing to do but to wait.
                    asyncio.get_running_loop().call_later(
                        0.2, os.kill, os.getpid(), signal.SIGUSR1
                    )
        return handled

    push_numbers(topic, 1)
    before = signal.signal(signal.SIGUSR1, lambda number, _: heard.append(number))
    try:
        assert asyncio.run(work()) == [0]
        assert heard == [signal.SIGUSR1]
        # It is put back.
        os.kill(os.getpid(), signal.SIGUSR1)
        assert heard == [signal.SIGUSR1] * 2
    finally:
        signal.signal(signal.SIGUSR1, before)
