"""A credential that ends in the middle of a run, in every pattern, with a real server."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from conftest import Server

import thalweg
from thalweg import steps

LIFE = 3.0
"""Seconds that a token is good for; everything below goes on for several lives."""


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    server = Server(tmp_path, "tcp://127.0.0.1:0")
    server.start()
    yield server
    server.stop()


def put_token(server: Server, file: Path) -> None:
    """Puts a new token into the file, as whoever renews it does."""
    fresh = file.with_suffix(".new")
    command = [thalweg.executable(), "token", "new", "--directory", str(server.directory / "data")]
    command += ["--can", "read,write,manage", "--for", f"{LIFE:.0f}s", "--output", str(fresh)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    os.replace(fresh, file)


class Renewal:
    """Renews a credential until it is told to stop: in time, or each time too late."""

    def __init__(self, server: Server, file: Path, late: bool) -> None:
        self.server, self.file = server, file
        self.wait = LIFE + 1 if late else LIFE / 3
        self.end = threading.Event()
        put_token(server, file)
        self.thread = threading.Thread(target=self.run)

    def run(self) -> None:
        while not self.end.wait(self.wait):
            put_token(self.server, self.file)

    def __enter__(self) -> None:
        self.thread.start()

    def __exit__(self, *_: object) -> None:
        self.end.set()
        self.thread.join()
        put_token(self.server, self.file)


def address(server: Server) -> str:
    with server.connect() as owner:
        for name in ("plain", "shared", "work"):
            owner.create_topic(name, partitions=2 if name == "shared" else 1)
        endpoints = json.loads(server.group_file.read_text())["endpoints"]
    return str(next(one for one in endpoints if one.startswith("tcp://")))


def numbers(driver: thalweg.Driver, topic: str) -> list[int]:
    """What is stored in a topic, in order of its numbers."""
    with driver.open_topic(topic).read() as events:
        return sorted(event.metadata["n"] for event in events)


@pytest.mark.parametrize("late", [False, True], ids=["in time", "late"])
def test_nothing_is_lost_when_credentials_end_and_are_renewed(
    server: Server, tmp_path: Path, late: bool
) -> None:
    file = tmp_path / "run.token"
    at = address(server)
    with Renewal(server, file, late), thalweg.Driver(address=at, credential=file) as driver:
        until = time.monotonic() + 4 * LIFE
        acknowledged: dict[str, list[int]] = {"plain": [], "shared": []}
        ended = threading.Event()
        answered: list[int] = []
        heard: list[int] = []

        def answer() -> None:
            with driver.open_topic("work").queue("workers", session_timeout=30) as queue:
                while not ended.is_set():
                    event = pull(queue)
                    if event is not None:
                        event.reply({"n": event.metadata["n"]})

        def hear() -> None:
            with driver.open_topic("work").consumer("every") as consumer:
                while not ended.is_set():
                    event = pull(consumer)
                    if event is not None:
                        heard.append(event.metadata["n"])

        def consume() -> None:
            with driver.open_topic("shared").group("group") as group:
                while not ended.is_set():
                    event = pull(group)
                    if event is not None:
                        answered.append(event.metadata["n"])
                        event.acknowledge()

        threads = [threading.Thread(target=one) for one in (answer, hear, consume)]
        for thread in threads:
            thread.start()
        stream = steps.Writer(driver, "steps")
        reader = steps.Reader(driver, "steps", start="oldest")
        read: list[int] = []
        with (
            driver.open_topic("plain").producer() as plain,
            driver.open_topic("shared").producer() as shared,
            driver.open_topic("work").requester() as requester,
        ):
            count = 0
            while time.monotonic() < until:
                for producer, name in ((plain, "plain"), (shared, "shared")):
                    producer.push({"n": count}).result(timeout=60)
                    acknowledged[name].append(count)
                reply = requester.request({"n": count}, timeout=60).result(timeout=60)
                assert reply.metadata == {"n": count}
                with stream.step() as step:
                    step.put("n", np.array([count]))
                given = reader.next(60)
                assert given is not None
                read.append(int(given["n"][0]))
                given.release()
                count += 1
        stream.close()
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline and not (
            len(set(answered)) == count and len(heard) == count
        ):
            time.sleep(0.05)
        ended.set()
        for thread in threads:
            thread.join(60)
    assert count > 10
    assert read == list(range(count))
    assert sorted(set(answered)) == acknowledged["shared"]
    assert heard == list(range(count))
    with server.connect() as owner:
        for name, sent in acknowledged.items():
            assert numbers(owner, name) == sent


def pull(consumer: thalweg.Consumer | thalweg.QueueConsumer) -> thalweg.Event | None:
    """The next event, if one comes soon; the server may refuse to join for a while."""
    try:
        return consumer.pull(timeout=0.5)
    except thalweg.Error:
        return None


def test_what_is_not_renewed_says_what_to_do(
    server: Server, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "run.token"
    at = address(server)
    put_token(server, file)
    with (
        caplog.at_level(logging.WARNING, "thalweg"),
        thalweg.Driver(address=at, credential=file) as driver,
    ):
        topic = driver.open_topic("plain")
        with topic.producer() as producer:
            producer.push({"n": 0}).result(timeout=60)
            time.sleep(LIFE)
            waiting = producer.push({"n": 1})
            with pytest.raises(thalweg.Timeout) as caught:
                producer.flush(timeout=2)
            put_token(server, file)
            waiting.result(timeout=60)
        assert "credential expired" in str(caught.value)
        assert "thalweg token new" in str(caught.value)
        assert numbers(driver, "plain") == [0, 1]
    said = [one.getMessage() for one in caplog.records if str(file) in one.getMessage()]
    assert any("expired at" in line and "put a new one" in line for line in said), said
