"""Servers for programs of other packages: those of the package's own tests."""

from __future__ import annotations

import importlib.util
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

# Processes that are spawned import by name what they are to run.
sys.path.insert(0, str(Path(__file__).parent))

_SERVERS = Path(__file__).parent.parent / "tests" / "conftest.py"
_spec = importlib.util.spec_from_file_location("servers_of_tests", _SERVERS)
assert _spec is not None and _spec.loader is not None
_servers: Any = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(_servers)

driver = _servers.driver
name = _servers.name
run_script = _servers.run_script
server = _servers.server
shared_server = _servers.shared_server
topic = _servers.topic


@pytest.fixture(scope="session")
def redis_port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """A Redis server of its own, or none where there is no Redis."""
    program = shutil.which("redis-server")
    if program is None:
        pytest.skip("there is no redis-server (Debian's package of that name)")
    # Redis does not choose a port by itself.
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
    directory = tmp_path_factory.mktemp("redis")
    command = [program, "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--dir", str(directory)]
    with (directory / "redis.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
    deadline = time.monotonic() + 60
    while True:
        try:
            socket.create_connection(("127.0.0.1", port)).close()
            break
        except OSError:
            assert process.poll() is None, (directory / "redis.log").read_text()
            assert time.monotonic() < deadline, "redis-server does not listen"
            time.sleep(0.01)
    yield port
    process.terminate()
    process.wait(60)
