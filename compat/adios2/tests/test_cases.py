"""ADIOS2's own staging programs, unmodified: each case of `cases.toml` on SST and on Thalweg."""

from __future__ import annotations

import signal
import subprocess
import tomllib
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from conftest import BUILD, ENVIRONMENT, LONG, Server

ENGINES = ("sst", "thalweg")
SST_TRIES = 3
#: So many run at once: most of a case is waiting.
AT_ONCE = 4


@dataclass
class Case:
    name: str
    write: str = "CommonWrite"
    read: str = "CommonRead"
    write_args: list[str] = field(default_factory=list)
    read_args: list[str] = field(default_factory=list)
    readers: int = 1
    shutdown: bool = False
    kill_writer: float = 0
    sst: str = "passes"
    thalweg: str = "passes"
    reason: str = ""


CASES = [Case(**case) for case in tomllib.loads((Path(__file__).parent.parent / "cases.toml").read_text())["case"]]


class Running:
    """A program of a case."""

    def __init__(self, program: str, arguments: list[str], directory: Path, environment: dict[str, str]) -> None:
        self.log = directory / f"{program}-{len(list(directory.iterdir()))}.log"
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [BUILD / "programs" / f"Test{program}", "SST", "stream", *arguments],
                cwd=directory,
                env=environment,
                stdout=log,
                stderr=log,
            )

    def passes(self) -> bool:
        try:
            return self.process.wait(LONG) == 0
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            with self.log.open("a") as log:
                log.write("\nThe test ended it: it took too long.\n")
            return False


def run(case: Case, directory: Path, environment: dict[str, str]) -> bool:
    writer = Running(case.write, case.write_args, directory, environment) if case.write else None
    count = case.readers if case.read else 0
    readers = [Running(case.read, case.read_args, directory, environment) for _ in range(count)]
    if case.kill_writer:
        assert writer is not None
        try:
            writer.process.wait(case.kill_writer)
            return False
        except subprocess.TimeoutExpired:
            writer.process.send_signal(signal.SIGTERM)
        writer.process.wait(LONG)
        return all([reader.passes() for reader in readers])
    passed = [reader.passes() for reader in readers]
    if case.shutdown:
        (directory / "DieTest").touch()
    if writer is not None:
        passed.append(writer.passes())
    return all(passed)


@pytest.fixture(scope="session")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Runs all cases, a server for each; gives whether one passed, and where its logs are."""
    with ThreadPoolExecutor(AT_ONCE) as pool:

        def begin(case: Case, engine: str) -> Future[bool]:
            directory = tmp_path_factory.mktemp(f"{engine}-{case.name}")
            return pool.submit(run_on, case, engine, directory)

        futures = {(case.name, engine): (case, begin(case, engine)) for case in CASES for engine in ENGINES}
        yield {key: future for key, (_, future) in futures.items()}


def programs_in(directory: Path, number: int) -> Path:
    programs = directory / f"programs-{number}"
    programs.mkdir()
    return programs


def run_on(case: Case, engine: str, directory: Path) -> bool:
    environment = {name: value for name, value in ENVIRONMENT.items() if not name.startswith("THALWEG")}
    if engine == "sst":
        # SST hangs by itself now and then, with several readers at once: what it can do it may try three times.
        return any(run(case, programs_in(directory, number), environment) for number in range(SST_TRIES))
    programs = programs_in(directory, 0)
    server = Server(directory)
    try:
        environment |= {
            "LD_PRELOAD": str(BUILD / "libthalweg_adios2.so"),
            "THALWEG_GROUP_FILE": str(server.group_file),
        }
        return run(case, programs, environment)
    finally:
        server.end()


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_case(case: Case, engine: str, outcomes: dict[tuple[str, str], Future[bool]],
              tmp_path_factory: pytest.TempPathFactory) -> None:
    came = "passes" if outcomes[case.name, engine].result() else "fails"
    expected = getattr(case, engine)
    if came != expected:
        logs = sorted(tmp_path_factory.getbasetemp().glob(f"{engine}-{case.name}[0-9]*/programs-*/*.log"))
        tails = "\n".join(f"--- {log.name}\n{log.read_text(errors='replace')[-3000:]}" for log in logs)
        pytest.fail(f"{case.name} on {engine} {came}; cases.toml says that it {expected}\n{tails}")


def test_what_passes_on_sst_passes_here_or_the_table_says_why() -> None:
    for case in CASES:
        assert case.reason or (case.sst, case.thalweg) == ("passes", "passes"), case.name
