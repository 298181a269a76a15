"""What SST cannot do, by programs that know nothing of Thalweg: `programs/write.py`, `programs/read.py`."""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from conftest import BUILD, HOME, LONG, Server

PROGRAMS = Path(__file__).parent / "programs"


class Program:
    """A program of its own, whose lines are read as they come."""

    def __init__(self, server: Server, name: str, *arguments: str, minor: str = "2.12") -> None:
        environment = os.environ | {"THALWEG_ADIOS2": "1", "THALWEG_GROUP_FILE": str(server.group_file)}
        self.process = subprocess.Popen(
            [HOME / minor / "bin/python", PROGRAMS / f"{name}.py", *arguments],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.said: list[str] = []
        self._lines: queue.Queue[str] = queue.Queue()
        self._threads = [
            threading.Thread(target=self._read, args=(self.process.stdout, self._lines.put), daemon=True),
            threading.Thread(target=self._read, args=(self.process.stderr, self.said.append), daemon=True),
        ]
        for thread in self._threads:
            thread.start()

    @staticmethod
    def _read(stream: Any, take: Any) -> None:
        for line in stream:
            take(line.rstrip("\n"))

    def tell(self, line: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def line(self) -> str:
        try:
            return self._lines.get(timeout=LONG)
        except queue.Empty:
            raise AssertionError(f"no line came; it said {self.said}") from None

    def answer(self) -> Any:
        return json.loads(self.line())

    def step(self, number: int) -> None:
        """Has it write a step, and waits until that is ended."""
        self.tell("step")
        assert self.line() == f"step {number}"

    def end(self) -> None:
        assert self.process.wait(LONG) == 0, self.said
        for thread in self._threads:
            thread.join(LONG)


def expected(step: int) -> dict[str, Any]:
    attributes = {"title": "of the run", "grid": [6, 8], "axes": ["y", "x"]} | {f"at{n}": n for n in range(step + 1)}
    corner = [[100.0 * step + 8 * y + x for x in (2, 3, 4)] for y in (1, 2)]
    return {"step": step, "corner": corner, "time": step * 0.5, "note": f"step {step}", "attributes": attributes}


def test_the_server_is_killed_and_started_again_between_steps(own_server: Server) -> None:
    reader = Program(own_server, "read", "killed")
    writer = Program(own_server, "write", "killed")
    assert (writer.line(), reader.answer()) == ("open", "open")
    writer.step(0)
    assert reader.answer() == expected(0)

    own_server.end(signal.SIGKILL)
    writer.tell("step")
    own_server.start()
    assert writer.line() == "step 1"
    assert reader.answer() == expected(1)
    writer.tell("close")
    assert writer.line() == "closed"
    assert "EndOfStream" in reader.answer()
    writer.end()
    reader.end()


def test_a_late_reader_has_all_steps_and_all_attributes(server: Server) -> None:
    writer = Program(server, "write", "late", "RendezvousReaderCount=0")
    assert writer.line() == "open"
    for number in range(3):
        writer.step(number)
    reader = Program(server, "read", "late")
    assert reader.answer() == "open"
    assert [reader.answer() for _ in range(3)] == [expected(number) for number in range(3)]
    writer.step(3)
    assert reader.answer() == expected(3)
    writer.tell("close")
    assert "EndOfStream" in reader.answer()
    writer.end()
    reader.end()


def test_a_late_reader_has_the_reserved_steps_in_order(server: Server) -> None:
    # Who was there has released all of them; SST keeps the newest two.
    first = Program(server, "read", "reserved")
    writer = Program(server, "write", "reserved", "ReserveQueueLimit=2")
    assert (writer.line(), first.answer()) == ("open", "open")
    for number in range(4):
        writer.step(number)
        assert first.answer() == expected(number)
    late = Program(server, "read", "reserved")
    assert late.answer() == "open"
    assert [late.answer() for _ in range(4)] == [expected(number) for number in range(4)]
    writer.tell("close")
    for reader in (first, late):
        assert "EndOfStream" in reader.answer()
        reader.end()
    writer.end()


def test_a_late_reader_has_the_precious_step_first(server: Server) -> None:
    parameters = ("RendezvousReaderCount=0", "FirstTimestepPrecious=true", "RetentionBytes=4000")
    writer = Program(server, "write", "precious", *parameters)
    assert writer.line() == "open"
    for number in range(20):
        writer.step(number)
    reader = Program(server, "read", "precious")
    assert reader.answer() == "open"
    assert reader.answer() == expected(0)
    oldest = reader.answer()
    assert oldest["step"] > 1
    assert oldest == expected(oldest["step"])
    writer.tell("close")
    while (last := reader.answer()) != "EndOfStream" and isinstance(last, dict):
        oldest = last
    assert oldest == expected(19)
    assert "EndOfStream" in last
    writer.end()
    reader.end()


def test_a_stopped_reader_does_not_hold_the_writers_close(server: Server) -> None:
    reader = Program(server, "read", "stopped")
    writer = Program(server, "write", "stopped")
    assert (writer.line(), reader.answer()) == ("open", "open")
    writer.step(0)
    assert reader.answer() == expected(0)
    reader.process.send_signal(signal.SIGSTOP)
    writer.step(1)
    writer.tell("close")
    assert writer.line() == "closed"
    writer.end()
    reader.process.send_signal(signal.SIGCONT)
    assert reader.answer() == expected(1)
    assert "EndOfStream" in reader.answer()
    reader.end()


def test_another_program_replays_a_run_after_its_writer_has_ended(server: Server) -> None:
    writer = Program(server, "write", "replayed", "RendezvousReaderCount=0")
    assert writer.line() == "open"
    for number in range(3):
        writer.step(number)
    writer.tell("close")
    writer.end()
    for run in ("last", "1"):
        reader = Program(server, "read", "replayed", f"Run={run}")
        assert reader.answer() == "open"
        assert [reader.answer() for _ in range(3)] == [expected(number) for number in range(3)]
        assert "EndOfStream" in reader.answer()
        reader.end()


def test_a_killed_writers_committed_steps_are_given_before_its_failure_is(server: Server) -> None:
    writer = Program(server, "write", "dead", "RendezvousReaderCount=0", "SessionTimeoutSecs=1")
    assert writer.line() == "open"
    for number in range(2):
        writer.step(number)
    reader = Program(server, "read", "dead")
    assert reader.answer() == "open"
    writer.process.kill()
    assert [reader.answer() for _ in range(2)] == [expected(number) for number in range(2)]
    assert "OtherError" in reader.answer()
    reader.end()


@pytest.mark.parametrize(("writing", "reading"), [("2.11", "2.11"), ("2.11", "2.12")])
def test_each_version_of_adios2_has_its_engine(server: Server, writing: str, reading: str) -> None:
    name = f"versions-{writing}-{reading}"
    reader = Program(server, "read", name, minor=reading)
    writer = Program(server, "write", name, minor=writing)
    assert (writer.line(), reader.answer()) == ("open", "open")
    writer.step(0)
    assert reader.answer() == expected(0)
    writer.tell("close")
    assert "EndOfStream" in reader.answer()
    writer.end()
    reader.end()


def test_what_adios2s_programs_do_not_look_at(server: Server) -> None:
    environment = os.environ | {
        "LD_PRELOAD": str(BUILD / "libthalweg_adios2.so"),
        "THALWEG_GROUP_FILE": str(server.group_file),
    }
    came = subprocess.run([BUILD / "model"], env=environment, capture_output=True, text=True, timeout=LONG, check=False)
    assert came.returncode == 0 and came.stdout == "all of it holds\n", came.stderr


def run(server: Server | None, text: str, tmp_path: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Runs a text of Python, with the engine if there is a server."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("THALWEG")}
    if server is not None:
        clean |= {"THALWEG_ADIOS2": "1", "THALWEG_GROUP_FILE": str(server.group_file)}
    return subprocess.run(
        [sys.executable, "-c", text], cwd=tmp_path, env=clean | environment, capture_output=True, text=True,
        timeout=LONG, check=False,
    )


OPEN = """
import adios2.bindings as b
adios = b.ADIOS()
io = adios.DeclareIO("io")
io.SetEngine("SST")
io.SetParameters({parameters})
try:
    engine = io.Open("refused", b.Mode.Write)
    print("opened", engine.Type())
    engine.Close()
except Exception as error:
    print(type(error).__name__, error)
"""


def test_without_a_server_sst_is_adios2s_own(tmp_path: Path) -> None:
    parameters = {"RendezvousReaderCount": "0"}
    for environment in ({}, {"THALWEG_ADIOS2": "1"}):
        came = run(None, OPEN.format(parameters=parameters), tmp_path, **environment)
        assert came.stdout == "opened SstWriter\n", came.stderr


@pytest.mark.parametrize(
    "parameter",
    ["QueueFullPolicy=sometimes", "RendezvousReaderCount=many", "MarshalMethod=xml", "FirstTimestepPrecious=perhaps",
     "StepDistributionMode=toNobody", "RegistrationMethod=cloud", "Run=first", "RetentionBytes=-1"],
)
def test_a_value_that_cannot_be_is_refused(server: Server, tmp_path: Path, parameter: str) -> None:
    name, value = parameter.split("=")
    came = run(server, OPEN.format(parameters={name: value}), tmp_path)
    # pybind's and nanobind's word for std::invalid_argument.
    assert came.stdout.startswith("ValueError") and name in came.stdout, (came.stdout, came.stderr)


def test_parameters_without_a_meaning_are_told_once(server: Server, tmp_path: Path) -> None:
    parameters = {"DataTransport": "evpath", "MarshalMethod": "BP5", "RendezvousReaderCount": "0"}
    came = run(server, OPEN.format(parameters=parameters) * 2, tmp_path)
    assert came.stdout == "opened ThalwegWriter\n" * 2
    told = [line for line in came.stderr.splitlines() if "mean nothing here" in line]
    assert len(told) == 1 and "DataTransport, MarshalMethod" in told[0], came.stderr
