"""The server is away for a while: nothing is lost, nothing ends by it, and no pull
says that there is nothing.
"""

from __future__ import annotations

import asyncio
import logging
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import thalweg

COUNT = 400

#: Joins the queue, says so, and is killed.
MEMBER = """
import sys, thalweg
with thalweg.Driver(sys.argv[1], connect_timeout=60) as driver:
    queue = driver.open_topic("tasks").queue("farm", session_timeout=float(sys.argv[2]), prefetch=1)
    print("there", flush=True)
    sys.stdin.read()
"""


def member(server: Any, session_timeout: float) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", MEMBER, str(server.group_file), str(session_timeout)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None and process.stdout.readline() == "there\n"
    return process


def work(driver: thalweg.Driver, done: list[int], half: threading.Event) -> None:
    """A worker that ends when a pull says that there is nothing."""
    with driver.open_topic("tasks").queue("farm", prefetch=8) as queue:
        while True:
            try:
                event = queue.pull(timeout=1.0)
            except thalweg.Error as error:
                assert isinstance(error, (thalweg.Unreachable, thalweg.Recovering))
                assert error.retryable
                continue
            if event is None:
                return
            with event:
                done.append(event.metadata["i"])
            if len(done) >= COUNT // 4:
                half.wait(100)


def read(driver: thalweg.Driver, seen: list[int]) -> None:
    with driver.open_topic("tasks").consumer("viewer") as consumer:
        for event in consumer:
            seen.append(event.metadata["i"])
            event.acknowledge()
            if len(seen) == COUNT:
                return


def push(driver: thalweg.Driver, away: threading.Event) -> list[int]:
    with driver.open_topic("tasks").producer() as producer:
        futures = [producer.push({"i": i}) for i in range(COUNT // 2)]
        away.wait(100)
        futures += [producer.push({"i": i}) for i in range(COUNT // 2, COUNT)]
        return [future.result(100).offset for future in futures]


def follow(server: Any) -> subprocess.Popen[str]:
    command = [thalweg.executable(), "consume", "tasks", "--name", "shell", "--follow", "--plain"]
    command += ["--max", str(COUNT), "--group-file", str(server.group_file)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def lines_of(process: subprocess.Popen[str], began: threading.Event) -> list[str]:
    assert process.stdout is not None
    lines = []
    for line in process.stdout:
        lines.append(line)
        began.set()
    return lines


def outage(server: Any, seconds: float) -> str:
    """A farm, an iteration, pushes and a command, in the middle of which the server
    and one of the workers are killed. Returns what the command said of it.
    """
    done: list[int] = []
    seen: list[int] = []
    away, back, began = threading.Event(), threading.Event(), threading.Event()
    with server.connect() as driver, ThreadPoolExecutor(8) as threads:
        driver.create_topic("tasks", partitions=1, storage="disk", durability="written")
        other = member(server, 5.0)
        pushed = threads.submit(push, driver, away)
        reading = threads.submit(read, driver, seen)
        shell = follow(server)
        printed = threads.submit(lines_of, shell, began)
        workers = [threads.submit(work, driver, done, back) for _ in range(3)]
        while len(done) < COUNT // 4 or len(seen) < COUNT // 4:
            time.sleep(0.01)
        # A command that has never been connected does not wait.
        assert began.wait(100)
        server.kill()
        other.kill()
        away.set()
        time.sleep(seconds)
        server.start()
        back.set()
        assert pushed.result(100) == list(range(COUNT))
        reading.result(100)
        for worker in workers:
            worker.result(100)
        assert seen == list(range(COUNT)), "in order, each once"
        assert sorted(set(done)) == list(range(COUNT)), "every task was done"
        lines = printed.result(100)
        assert shell.stderr is not None
        notes = shell.stderr.read()
        assert shell.wait(100) == 0, notes
        assert len(lines) == COUNT
        return notes


def test_a_restart_of_a_second_ends_nothing(server: Any) -> None:
    outage(server, 1.0)


def test_an_outage_of_a_minute_ends_nothing_and_is_reported(
    server: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "other").mkdir()
    other = type(server)(tmp_path / "other")
    other.start()
    try:
        with caplog.at_level(logging.WARNING, "thalweg"), ThreadPoolExecutor(2) as threads:
            long = threads.submit(outage, server, 60.0)
            short = threads.submit(outage, other, 20.0)
            notes = [short.result(), long.result()]
    finally:
        other.stop()
    said = [record.getMessage() for record in caplog.records if record.name == "thalweg"]
    viewer = [text for text in said if text.startswith("consumer viewer of tasks")]
    assert any("has waited for 50 s: no server is reached at" in text for text in viewer), said
    # Reported when it waits once more, which its last event may have made needless.
    assert sum("goes on" in text for text in viewer) <= 2, viewer
    assert all("note: consumer shell of tasks has waited for 10 s" in note for note in notes)
    assert all(note.count("goes on") <= 1 for note in notes)


def test_a_queue_that_recovers_does_not_say_that_there_is_nothing(server: Any) -> None:
    with server.connect() as driver:
        topic = driver.create_topic("tasks", storage="disk", durability="written")
        queue = topic.queue("farm")
        assert queue.pull(timeout=0) is None
        other = member(server, 4.0)
        with topic.producer() as producer:
            producer.push({"i": 0}).result()
        event = queue.pull(timeout=100)
        assert event is not None
        event.acknowledge().result()
        server.kill()
        other.kill()
        # The server is away.
        with pytest.raises(thalweg.Unreachable) as away:
            queue.pull(timeout=0.3)
        assert away.value.retryable
        server.start()
        with server.connect() as second, second.open_topic("tasks").producer() as producer:
            producer.push({"i": 1}).result()
        said: set[type] = set()
        event = None
        while event is None:
            try:
                event = queue.pull(timeout=0)
                assert event is not None, "an event is ready, and the queue recovers"
            except thalweg.Unreachable:
                said.add(thalweg.Unreachable)
            except thalweg.Recovering as error:
                said.add(thalweg.Recovering)
                assert error.retryable
                assert error.retry_after is not None and 0 <= error.retry_after <= 4
        assert event.metadata == {"i": 1}
        assert thalweg.Recovering in said
        event.acknowledge().result()
        queue.close()


def test_a_driver_that_waits_for_a_while_only_says_so_and_goes_on_later(server: Any) -> None:
    with server.connect(reconnect_timeout=0.5) as driver:
        topic = driver.create_topic("tasks", storage="disk")
        consumer, queue = topic.consumer("viewer"), topic.queue("farm")
        server.kill()
        for events in (consumer, queue):
            with pytest.raises(thalweg.Unreachable) as away:
                next(iter(events))
            assert away.value.retryable
        server.start()
        with server.connect() as second, second.open_topic("tasks").producer() as producer:
            producer.push({"i": 1}).result()
        for events in (consumer, queue):
            while True:
                try:
                    event = next(iter(events))
                    break
                except thalweg.Unreachable:
                    time.sleep(0.01)
            assert event.metadata == {"i": 1}
            event.acknowledge()


def test_async_iteration_goes_on_through_an_outage(server: Any) -> None:
    async def count(events: Any) -> list[int]:
        seen = []
        async for event in events:
            seen.append(event.metadata["i"])
            event.acknowledge()
            if len(seen) == 20:
                break
        return seen

    async def run() -> None:
        with server.connect() as driver:
            topic = driver.create_topic("tasks", storage="disk", durability="written")
            with topic.producer() as producer:
                for i in range(10):
                    producer.push({"i": i})
                await asyncio.to_thread(producer.flush)
                tasks = [
                    asyncio.create_task(count(topic.consumer("viewer"))),
                    asyncio.create_task(count(topic.queue("farm"))),
                ]
                await asyncio.sleep(0.2)
                await asyncio.to_thread(server.kill)
                await asyncio.sleep(1.2)
                await asyncio.to_thread(server.start)
                for i in range(10, 20):
                    producer.push({"i": i})
                seen, done = await asyncio.gather(*tasks)
        assert seen == list(range(20))
        assert done == list(range(20)), "who acknowledges gets each once"

    asyncio.run(asyncio.wait_for(run(), 100))
