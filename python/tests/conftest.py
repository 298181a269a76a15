"""A real server for every test: the `thalweg` command that the wheel installs."""

from __future__ import annotations

import itertools
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import thalweg


_numbers = itertools.count()


@pytest.fixture
def many_files() -> Iterator[None]:
    """As many files may be open as the system allows: the usual limit of a user is 1,024."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


class Server:
    """A `thalweg serve` process on a directory of its own."""

    def __init__(self, directory: Path, *listen: str) -> None:
        self.directory = directory
        self.group_file = directory / "thalweg.json"
        self.listen = listen
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        command = [thalweg.executable(), "serve"]
        command += ["--directory", str(self.directory / "data")]
        command += ["--group-file", str(self.group_file)]
        for address in self.listen:
            command += ["--listen", address]
        with (self.directory / "server.log").open("ab") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log)

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    def pause(self) -> None:
        os.kill(self.pid, signal.SIGSTOP)
        # It stops a little later.
        status = Path(f"/proc/{self.pid}/stat")
        while status.read_text().rpartition(")")[2].split()[0] != "T":
            pass

    def go_on(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    def kill(self) -> None:
        """Ends it as a crash does."""
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def stop(self) -> None:
        """Ends it as an operator does."""
        if self.process is None or self.process.poll() is not None:
            return
        self.go_on()
        self.process.terminate()
        try:
            self.process.wait(60)
        finally:
            self.process.kill()

    def connect(self, **options: object) -> thalweg.Driver:
        return thalweg.Driver(self.group_file, connect_timeout=60.0, **options)  # type: ignore[arg-type]


@pytest.fixture(scope="session")
def shared_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    server = Server(tmp_path_factory.mktemp("server"))
    server.start()
    yield server
    server.stop()


@pytest.fixture(scope="session")
def driver(shared_server: Server) -> Iterator[thalweg.Driver]:
    """A driver for all tests that do not end it."""
    with shared_server.connect() as driver:
        yield driver


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    """A server for one test, which may do with it what it likes."""
    server = Server(tmp_path)
    server.start()
    yield server
    server.stop()


@pytest.fixture
def name() -> str:
    """A topic's name that no other test uses."""
    return f"topic-{next(_numbers)}"


@pytest.fixture
def topic(driver: thalweg.Driver, name: str) -> thalweg.Topic:
    """A topic of one partition in memory."""
    return driver.create_topic(name, storage="memory")


@pytest.fixture
def run_script(tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Runs Python code in a process of its own; fails the test if it hangs."""

    def run(code: str, *arguments: object) -> subprocess.CompletedProcess[str]:
        script = tmp_path / "script.py"
        script.write_text(code)
        command = [sys.executable, "-u", str(script), *map(str, arguments)]
        return subprocess.run(command, capture_output=True, text=True, timeout=100)

    return run
