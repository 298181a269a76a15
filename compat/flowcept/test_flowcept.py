"""Flowcept, as it is published, with its Mofka message queue on Thalweg, beside
the same on its Redis message queue.

Run by `scripts/flowcept`, which makes the environment in which Flowcept is.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import thalweg

HERE = Path(__file__).resolve().parent
PYTHON = os.environ.get("FLOWCEPT_PYTHON", "")
WORKERS = 3
#: What `scenario.py capture` makes: in each process 25 tasks, here one more that fails.
TASKS = 25 * (WORKERS + 1) + 1

SETTINGS = """
flowcept_version: 1.0.3
log: {{log_path: {directory}/{queue}.log, log_file_level: error, log_stream_level: critical}}
project: {{db_flush_mode: online, dump_buffer: {{enabled: false}}, enrich_messages: true}}
telemetry_capture: {{}}
mq:
  enabled: true
  type: {queue}
  group_file: {directory}/mofka.json
  channel: interception
  buffer_size: 10
  insertion_buffer_time_secs: 1
  host: 127.0.0.1
  port: {port}
kv_db: {{enabled: true, host: 127.0.0.1, port: {port}}}
databases: {{mongodb: {{enabled: false}}, lmdb: {{enabled: true, path: {directory}/{database}}}}}
"""


def until(condition: Any) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline, "it never happened"
        time.sleep(0.02)


class Site:
    """A Redis, a Thalweg, and Flowcept between them."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        log = (directory / "redis-server.log").open("wb")
        self.redis = subprocess.Popen(
            ["redis-server", "--port", str(self.port), "--bind", "127.0.0.1", "--save", "", "--dir", str(directory)],
            stdout=log, stderr=log,
        )
        self.server: subprocess.Popen[bytes] | None = None
        self.serve()
        until(self._redis_answers)

    def _redis_answers(self) -> bool:
        assert self.redis.poll() is None, (self.directory / "redis-server.log").read_text()
        with socket.socket() as client:
            return client.connect_ex(("127.0.0.1", self.port)) == 0

    def serve(self) -> None:
        with (self.directory / "server.log").open("ab") as log:
            self.server = subprocess.Popen(
                [thalweg.executable(), "serve", "--directory", str(self.directory / "data"),
                 "--group-file", str(self.directory / "mofka.json")],
                stdout=log, stderr=log,
            )

    def kill(self) -> None:
        assert self.server is not None
        self.server.kill()
        self.server.wait()

    def stop(self) -> None:
        self.kill()
        self.redis.kill()
        self.redis.wait()

    def mofkactl(self, *arguments: str) -> None:
        until((self.directory / "mofka.json").exists)
        command = Path(PYTHON).parent / "mofkactl"
        subprocess.run([command, *arguments, "--groupfile", str(self.directory / "mofka.json")], check=True, timeout=60)

    def run(self, queue: str, *arguments: object, database: str | None = None, **environment: str) -> dict[str, Any]:
        """Runs a command of the scenario by a message queue of Flowcept's."""
        settings = self.directory / f"{queue}.yaml"
        settings.write_text(SETTINGS.format(
            directory=self.directory, queue=queue, port=self.port, database=database or f"{queue}-lmdb"))
        done = subprocess.run(
            [PYTHON, str(HERE / "scenario.py"), *map(str, arguments)],
            capture_output=True, text=True, timeout=180, cwd=self.directory,
            env={**os.environ, "FLOWCEPT_SETTINGS_PATH": str(settings), **environment},
        )
        assert done.returncode == 0, done.stderr
        found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        return found


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    if not PYTHON:
        pytest.fail("FLOWCEPT_PYTHON is not set: run scripts/flowcept")
    site = Site(tmp_path_factory.mktemp("flowcept"))
    yield site
    site.stop()


@pytest.fixture(scope="module")
def captured(site: Site) -> dict[str, dict[str, Any]]:
    """What came of the same run by each message queue."""
    site.mofkactl("topic", "create", "interception")
    site.mofkactl("partition", "add", "interception", "--type", "default", "--rank", "0")
    return {queue: site.run(queue, "capture", WORKERS) for queue in ("redis", "mofka")}


def test_flowcept_is_the_published_one() -> None:
    code = "import flowcept, importlib.metadata as m, thalweg_mofka; print(m.version('flowcept'), m.version('thalweg-mofka'))"
    done = subprocess.run([PYTHON, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split()[0] == "1.0.3"


def test_everything_is_captured_and_the_stop_is_a_safe_one(captured: dict[str, dict[str, Any]]) -> None:
    mofka = captured["mofka"]
    assert len(mofka["tasks"]) == len(set(mofka["tasks"])) == TASKS
    assert mofka["of this workflow"] == 26
    assert mofka["exit codes"] == [0] * WORKERS
    assert mofka["workflows"] == ["main", *(f"worker {worker}" for worker in range(WORKERS))]
    assert json.dumps(["fails", {"x": 7}, None, "ERROR"]) in mofka["tasks"]


def test_the_outcome_is_that_of_the_redis_backend(captured: dict[str, dict[str, Any]]) -> None:
    assert captured["mofka"] == captured["redis"]


def test_all_messages_are_there_for_who_comes_later(site: Site, captured: dict[str, dict[str, Any]]) -> None:
    # After a crash of the server, too.
    site.kill()
    site.serve()
    replayed = site.run("mofka", "replay")
    assert replayed["tasks"] == TASKS
    ends = ["mq_flush_complete", "mq_dao_thread_stopped"]
    # Each producer's own order is kept, and the inserter's stop is behind all.
    assert sorted(replayed["control"][:-1]) == sorted(ends * (WORKERS + 1))
    assert replayed["control"][-1] == "stop_document_inserter"


def test_a_later_run_ends_alike(site: Site, captured: dict[str, dict[str, Any]]) -> None:
    later = {queue: site.run(queue, "again") for queue in ("redis", "mofka")}
    assert later["mofka"] == later["redis"]
    assert len(later["mofka"]["tasks"]) == TASKS + 3


def test_a_later_run_may_begin_at_the_end(site: Site, captured: dict[str, dict[str, Any]]) -> None:
    fresh = site.run("mofka", "again", database="fresh-lmdb", THALWEG_MOFKA_START_FROM="latest")
    assert fresh["workflows"] == ["again"] and len(fresh["tasks"]) == 3
