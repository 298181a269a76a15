"""What the tests have: a Thalweg server of their own, and ADIOS2 as `scripts/adios2` has built it.

`ADIOS2_HOME` is the folder with what was installed and built; `THALWEG` is the command.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

HOME = Path(os.environ["ADIOS2_HOME"])
BUILD = HOME / "build-2.12"
COMMAND = os.environ["THALWEG"]
#: What programs begin from. Threads start some of them, and pytest changes this process's environment all the while,
#: under the feet of an `exec` that reads it: it then fails with EFAULT.
ENVIRONMENT = dict(os.environ)
#: Longer than anything takes here: what comes to it hangs.
LONG = 120.0


def until(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + LONG
    while not condition():
        assert time.monotonic() < deadline, f"it never happened: {what}"
        time.sleep(0.02)


class Server:
    """A server that may be killed and started again, on the same data and the same port."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.group_file = directory / "thalweg.json"
        self.process: subprocess.Popen[bytes] | None = None
        self.start()

    def start(self) -> None:
        self.group_file.unlink(missing_ok=True)
        with (self.directory / "server.log").open("ab") as log:
            self.process = subprocess.Popen(
                [COMMAND, "serve", "--directory", str(self.directory / "data"), "--group-file", str(self.group_file)],
                env=ENVIRONMENT,
                stdout=log,
                stderr=log,
            )
        until(self._answers, "the server has started")

    def _answers(self) -> bool:
        assert self.process is not None
        assert self.process.poll() is None, (self.directory / "server.log").read_text()
        return self.group_file.exists()

    def end(self, how: int = signal.SIGTERM) -> None:
        assert self.process is not None
        self.process.send_signal(how)
        self.process.wait(LONG)


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """One server for all tests that do not harm it."""
    server = Server(tmp_path_factory.mktemp("server"))
    yield server
    server.end()


@pytest.fixture
def own_server(tmp_path: Path) -> Iterator[Server]:
    """A server of the test's own."""
    server = Server(tmp_path)
    yield server
    server.end(signal.SIGKILL)
