"""A simulation in steps, three readers, and two kills: nobody misses a step, and none comes out different.

    python run.py OUTPUT_DIRECTORY [--steps 240] [--ranks 4] …

Starts a server, a simulation of several ranks, and its readers: painters (ranks of another number, by
columns), a summary, a training. The painters are killed and started again; then the simulation is, and
goes on behind its last committed step. Afterwards the run is painted once more, by yet another number of
ranks. Every picture has to be the same, bit for bit, and the last step what the simulation gives without
any of this. A page with pictures tells of it.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import platform
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from log import lines
from order import fault
from report import write_report
from simulation import QUEUE
from waves import Alone, Array, beginning

import thalweg
from thalweg import steps

HERE = Path(__file__).parent
WATCHDOG_S = 170
"""The whole run ends in an error after this long, whatever hangs."""


class Failed(Exception):
    """The demo has found what must not be."""


class Programs:
    """Processes, each with a group of its own, so that a kill is of all its ranks."""

    def __init__(self, group_file: Path, scratch: Path) -> None:
        self.group_file, self.scratch = group_file, scratch
        self.running: dict[str, subprocess.Popen[bytes]] = {}
        self.arguments: dict[str, list[str]] = {}

    def start(self, name: str, program: str, *arguments: object) -> None:
        command = [sys.executable, str(HERE / program), str(self.group_file), *map(str, arguments)]
        self.arguments[name] = command
        self.running[name] = subprocess.Popen(command, start_new_session=True)

    def kill(self, name: str) -> None:
        os.killpg(self.running[name].pid, signal.SIGKILL)
        self.running[name].wait()

    def start_again(self, name: str) -> None:
        self.running[name] = subprocess.Popen(self.arguments[name], start_new_session=True)

    def check(self) -> None:
        for name, process in self.running.items():
            if process.poll():
                raise Failed(f"{name} ended with status {process.returncode}")

    def wait(self, names: list[str]) -> None:
        for name in names:
            self.running[name].wait()
        self.check()

    def end(self) -> None:
        for process in self.running.values():
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()


def directed(programs: Programs, driver: thalweg.Driver, options: argparse.Namespace) -> dict[str, Any]:
    """Follows the steps, and kills at two of them. What happened when."""
    kill_painter, kill_simulation = options.steps // 3, options.steps * 2 // 3
    happened: dict[str, Any] = {}
    seen = []
    with steps.Reader(driver, "waves", name="director") as reader:
        while True:
            try:
                step = reader.next(timeout=1)
            except thalweg.Timeout:
                programs.check()
                continue
            if step is None:
                break
            seen.append(step.number)
            if step.number == kill_painter:
                happened["painter"] = {"step": step.number, "time": time.time()}
                programs.kill("painter")
                print(f"step {step.number}: the painter was killed", flush=True)
                programs.start_again("painter")
            if step.number == kill_simulation:
                happened["simulation"] = {"step": step.number, "time": time.time()}
                programs.kill("simulation")
                print(f"step {step.number}: the simulation was killed: all of its ranks", flush=True)
                programs.start_again("simulation")
    if seen != list(range(options.steps)):
        raise Failed(f"steps came as {seen}")
    return happened


def frames(scratch: Path, name: str, ranks: int, count: int) -> list[Array]:
    """The pictures of all steps, put together of their tiles."""
    found = []
    for number in range(count):
        tiles = [np.load(scratch / f"{name}-{number:05}-{rank}.npy") for rank in range(ranks)]
        found.append(np.concatenate(tiles, axis=1))
    return found


def expected(options: argparse.Namespace) -> dict[str, Array]:
    """The last step, by one rank, without a stream and without a kill."""
    whole = beginning((options.rows, options.columns), options.particles)
    for _ in range(options.steps - 1):
        whole.advance(Alone())
    return {"u": whole.u, "v": whole.v, "particles": np.sort(whole.particles, order="id")}


def check_last(driver: thalweg.Driver, options: argparse.Namespace) -> None:
    (run,) = steps.runs(driver, "waves")
    if (run.state, run.count, run.ranks) != ("closed", options.steps, options.ranks):
        raise Failed(f"the run is {run}")
    last = steps.open_run(driver, "waves")[-1].get_many(["u", "v", "particles"])
    last["particles"] = np.sort(last["particles"], order="id")
    for name, wanted in expected(options).items():
        if last[name].tobytes() != wanted.tobytes():
            raise Failed(f"{name} of the last step is not what the simulation gives by itself")


def check_readers(scratch: Path, options: argparse.Namespace) -> None:
    painters = {f"live-{rank}" for rank in range(options.painters)}
    given = {name: [line["step"] for line in lines(scratch / f"{name}.log")] for name in (*painters, "summary", "training")}
    # The training learns from a step and the one before it.
    if wrong := fault(given, options.steps, killed=painters, beginning={"training": 1}, queue=QUEUE):
        raise Failed(wrong)


def where() -> str:
    """When and on what this runs."""
    when = time.strftime("%Y-%m-%d %H:%M", time.gmtime(time.time()))
    return (f"{when} UTC; Thalweg {thalweg.__version__}, Python {platform.python_version()}, NumPy {np.__version__}; "
            f"{os.cpu_count()} processors ({platform.machine()}), Linux {platform.release()}; load {os.getloadavg()[0]:.1f} at the end.")


def demo(programs: Programs, driver: thalweg.Driver, options: argparse.Namespace) -> dict[str, Any]:
    scratch, count = programs.scratch, options.steps
    # A writer makes its stream; here readers begin before it.
    steps.create_stream(driver, "waves", partitions=2)
    began = time.time()
    programs.start("painter", "painter.py", scratch, "live", options.painters, "cursor")
    programs.start("summary", "summary.py", scratch)
    programs.start("training", "training.py", scratch)
    programs.start("simulation", "simulation.py", options.ranks, count, options.rows, options.columns, options.particles)
    happened = directed(programs, driver, options)
    programs.wait(["simulation", "painter", "summary", "training"])
    ended = time.time()
    print(f"{count} steps in {ended - began:.1f} s; painting the stored run once more, by {options.again} ranks", flush=True)
    run = steps.runs(driver, "waves")[-1]
    programs.start("again", "painter.py", scratch, "again", options.again, run.number)
    programs.wait(["again"])
    repainted = time.time()

    check_readers(scratch, options)
    check_last(driver, options)
    live = frames(scratch, "live", options.painters, count)
    again = frames(scratch, "again", options.again, count)
    differ = [number for number in range(count) if live[number].tobytes() != again[number].tobytes()]
    if differ:
        raise Failed(f"painted once more, the pictures of steps {differ} differ")
    names = [f"live-{rank}" for rank in range(options.painters)] + ["summary", "training"]
    return {
        "where": where(),
        "steps": count,
        "shape": [options.rows, options.columns],
        "particles": options.particles,
        "ranks": options.ranks,
        "painters": options.painters,
        "again": options.again,
        "bytes": run.nbytes,
        "elapsed_s": round(ended - began, 1),
        "repainted_s": round(repainted - ended, 1),
        "began": began,
        "killed": happened,
        "committed": [[step.number, step.time / 1e9] for step in steps.open_run(driver, "waves")],
        "pictures_sha256": hashlib.sha256(b"".join(frame.tobytes() for frame in live)).hexdigest(),
        "logs": {name: lines(scratch / f"{name}.log") for name in names},
        "live": live,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("output", type=Path)
    parser.add_argument("--steps", type=int, default=240)
    parser.add_argument("--rows", type=int, default=160)
    parser.add_argument("--columns", type=int, default=256)
    parser.add_argument("--particles", type=int, default=4000)
    parser.add_argument("--ranks", type=int, default=4, help="of the simulation")
    parser.add_argument("--painters", type=int, default=2, help="ranks that paint")
    parser.add_argument("--again", type=int, default=3, help="ranks that paint once more")
    options = parser.parse_args()
    if options.steps < 6:
        parser.error("--steps is from 6")
    output = options.output.resolve()
    shutil.rmtree(output, ignore_errors=True)
    output.mkdir(parents=True)
    scratch = Path(tempfile.mkdtemp(prefix="thalweg-steps-"))
    signal.alarm(WATCHDOG_S)
    group_file = scratch / "thalweg.json"
    command = [thalweg.executable(), "serve", str(scratch / "data"), "--group-file", str(group_file)]
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    programs = Programs(group_file, scratch)
    try:
        with thalweg.Driver(group_file, connect_timeout=60) as driver:
            facts = demo(programs, driver, options)
    except Failed as reason:
        sys.exit(f"demo: {reason}")
    finally:
        programs.end()
        server.terminate()
        server.wait(timeout=30)
        shutil.rmtree(scratch, ignore_errors=True)
    live = facts.pop("live")
    write_report(output, facts, live)
    (output / "facts.json").write_text(json.dumps({**facts, "logs": None}, indent=1))
    print(f"report: {output / 'report.html'}")
    print(f"the same, bit for bit: {facts['steps']} pictures painted while it ran and once more, "
          f"and the last step beside that of one rank without a stream")


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    main()
