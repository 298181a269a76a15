"""A real server, and each dialect as its programs speak it."""

from __future__ import annotations

import itertools
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import thalweg
from diaspora_stream.api import (
    AdaptiveBatchSize,
    Consumer,
    Driver,
    Event,
    Ordering,
    Producer,
    ThreadPool,
    TopicHandle,
)
from mochi.mofka.client import MofkaDriver

_numbers = itertools.count()


class Server:
    """A `thalweg serve` process on a directory of its own."""

    #: How many servers there are.
    count = 1

    def __init__(self, directory: Path, data: Path | None = None, wrapper: tuple[str, ...] = ()) -> None:
        self.directory = directory
        self.data = data or directory / "data"
        self.group_file = directory / "mofka.json"
        self.wrapper = wrapper
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        command = [*self.wrapper, thalweg.executable(), "serve", "--directory", str(self.data),
                   "--group-file", str(self.group_file)]
        with (self.directory / "server.log").open("ab") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log)

    def pause(self) -> None:
        """Stops it where it is."""
        assert self.process is not None
        self.process.send_signal(signal.SIGSTOP)
        # It stops a little later.
        state = Path(f"/proc/{self.process.pid}/stat")
        while state.read_text().rpartition(")")[2].split()[0] != "T":
            pass

    def kill(self) -> None:
        """Ends it as a crash does."""
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def stop(self) -> None:
        if self.process is None or self.process.poll() is not None:
            return
        self.process.terminate()
        try:
            self.process.wait(60)
        finally:
            self.process.kill()


@dataclass(frozen=True)
class Dialect:
    """One dialect: how its programs make what they use, and what they get."""

    name: str

    def driver(self, server: Server, **options: Any) -> Driver:
        path = str(server.group_file)
        if self.name == "legacy":
            return MofkaDriver(path, use_progress_thread=True, connect_timeout=60.0, **options)
        options = {"group_file": path, "connect_timeout": 60.0, **options}
        if self.name == "middle":
            return Driver.new("mofka", {"margo": {"use_progress_thread": True}, **options})
        return Driver(backend="mofka", options=options)

    def topic(self, driver: Driver, name: str, storage: str = "memory", partitions: int = 1, **components: Any) -> TopicHandle:
        """Makes and opens a topic."""
        if self.name == "legacy":
            if "partition_selector" in components:
                components["selector"] = components.pop("partition_selector")
            driver.create_topic(name, **components)
            ranks = itertools.islice(itertools.cycle(range(driver.num_servers)), partitions)
            for rank in ranks:
                if storage == "memory":
                    driver.add_memory_partition(name, rank)
                else:
                    driver.add_default_partition(
                        name, rank, driver.add_metadata_provider(rank), driver.add_data_provider(rank)
                    )
        else:
            kind = "memory" if storage == "memory" else "default"
            driver.create_topic(
                name=name,
                options={"num_partitions": partitions, "config": {"type": kind, "partition": {"path": "/tmp"}}},
                **components,
            )
        return driver.open_topic(name)

    def producer(self, topic: TopicHandle, name: str = "producer", batch_size: int = AdaptiveBatchSize,
                 threads: int = 1, ordering: Ordering = Ordering.Strict, **more: Any) -> Producer:
        if self.name == "legacy":
            return topic.producer(name, batch_size, ThreadPool(threads), ordering, **more)
        return topic.producer(
            name, batch_size=batch_size, thread_pool=topic.driver.make_thread_pool(threads), ordering=ordering, **more
        )

    def consumer(self, topic: TopicHandle, name: str, selector: Any = None, allocator: Any = None, **more: Any) -> Consumer:
        if selector is not None:
            more["data_selector"] = selector
        if allocator is not None:
            more["data_broker" if self.name == "legacy" else "data_allocator"] = allocator
        return topic.consumer(name=name, **more)

    def wait(self, future: Any) -> Any:
        """Waits as long as it takes, as programs of the dialect do."""
        if self.name == "current":
            return future.wait(timeout_ms=60_000)
        return future.wait()

    def flush(self, producer: Producer) -> None:
        """Flushes so that all is stored."""
        flushed = producer.flush()
        if self.name == "current":
            assert flushed.wait(timeout_ms=60_000)

    def metadata(self, event: Event) -> Any:
        if self.name == "legacy":
            assert isinstance(event.metadata, str)
            return json.loads(event.metadata)
        assert not isinstance(event.metadata, str) or event.metadata == json.loads(json.dumps(event.metadata))
        return event.metadata

    def take(self, consumer: Consumer, count: int) -> list[Event]:
        """The next events."""
        return [self.wait(consumer.pull()) for _ in range(count)]


class ClusterOfServers(Server):
    """Three servers that act as one, by one group file; the partitions of each topic are spread over them."""

    count = 3

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.processes: list[subprocess.Popen[bytes]] = []

    def start(self) -> None:
        for rank in map(str, range(3)):
            command = [thalweg.executable(), "serve", str(self.directory / f"data-{rank}")]
            command += ["--group-file", str(self.group_file), "--cluster", str(self.directory / "shared")]
            command += ["--rank", rank, "--size", "3", "--cluster-listen", "tls://127.0.0.1:0"]
            with (self.directory / f"server-{rank}.log").open("ab") as log:
                self.processes.append(subprocess.Popen(command, stdout=log, stderr=log))

    def stop(self) -> None:
        for process in self.processes:
            process.terminate()
        try:
            for process in self.processes:
                process.wait(60)
        finally:
            for process in self.processes:
                process.kill()


@pytest.fixture(scope="session")
def shared_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """One server, or with THALWEG_TEST_CLUSTER=1 a cluster of three."""
    is_cluster = os.environ.get("THALWEG_TEST_CLUSTER") == "1"
    server = (ClusterOfServers if is_cluster else Server)(tmp_path_factory.mktemp("server"))
    server.start()
    yield server
    server.stop()


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Callable[..., Server]]:
    """Starts servers that end with the test, which may do with them what it likes."""
    started: list[Server] = []

    def serve(**given: Any) -> Server:
        started.append(Server(tmp_path, **given))
        started[-1].start()
        return started[-1]

    yield serve
    for server in started:
        server.stop()


@pytest.fixture
def server(serve: Callable[..., Server]) -> Server:
    """A server for one test."""
    return serve()


@pytest.fixture(scope="session", params=["legacy", "middle", "current"])
def dialect(request: pytest.FixtureRequest) -> Dialect:
    return Dialect(request.param)


@pytest.fixture(params=["memory", "disk"])
def storage(request: pytest.FixtureRequest) -> str:
    kind: str = request.param
    return kind


@pytest.fixture(scope="session")
def driver(dialect: Dialect, shared_server: Server) -> Iterator[Driver]:
    """A driver for all tests of a dialect that do not end it."""
    with dialect.driver(shared_server) as driver:
        yield driver


@pytest.fixture
def current(shared_server: Server) -> Iterator[Driver]:
    """A driver of the current dialect, for what is the same in all."""
    with Dialect("current").driver(shared_server) as driver:
        yield driver


@pytest.fixture
def name() -> str:
    """A topic's name that no other test uses."""
    return f"topic-{next(_numbers)}"


@pytest.fixture
def topic(dialect: Dialect, driver: Driver, name: str, storage: str) -> TopicHandle:
    """A topic of one partition, in memory and on disk."""
    return dialect.topic(driver, name, storage)


@pytest.fixture
def run_script(tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Runs Python code in a process of its own; fails the test if it hangs."""

    def run(code: str, *arguments: object, **environment: str) -> subprocess.CompletedProcess[str]:
        script = tmp_path / "script.py"
        script.write_text(code)
        command = [sys.executable, "-u", str(script), *map(str, arguments)]
        return subprocess.run(command, capture_output=True, text=True, timeout=100,
                              env={**os.environ, **environment})

    return run
