"""The whole pipeline: a server, the components as processes, and a check of what came out.

    python run.py OUTPUT [--scan FILE] [--kill NAME ...] [--one-after-another]

Without a scan it makes one of a phantom. What was reconstructed is compared with the same computation
without any stream between, bit by bit, and with the phantom, if there is one. `facts.json` and
`report.html` in OUTPUT say what was found; the exit status is 0 if all is as it should be.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

import thalweg
from report import write_report
from scan import Scan, read_scan, write_phantom
from sirt import Window, normalised, rows_of_rank

HERE = Path(__file__).resolve().parent
COMPONENTS = ("acquisition", "distribution", "reconstruction", "denoising", "viewer")


def processor_s(pid: int) -> float:
    """Seconds of processors that the threads of a process have used."""
    tasks = Path(f"/proc/{pid}/task").glob("*/schedstat")
    return sum(int(task.read_text().split()[0]) for task in tasks) / 1e9


class Server:
    """`thalweg serve` on a directory, as a process of its own."""

    def __init__(self, directory: Path) -> None:
        self.group_file = directory / "thalweg.json"
        command = [thalweg.executable(), "serve", str(directory / "data")]
        command += ["--group-file", str(self.group_file)]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        if not self.process.stdout.readline():
            raise RuntimeError(f"the server ended with status {self.process.wait()}")

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait(60)


class Component:
    """One program of the pipeline, as a process; killed and started again if asked to."""

    def __init__(self, name: str, command: Sequence[str], report: Path) -> None:
        self.name, self.command, self.report = name, list(command), report
        self.process: subprocess.Popen[str] | None = None

    def start(self, *more: str) -> None:
        # One thread computes: ranks share a machine by being many.
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
        self.process = subprocess.Popen(
            [*self.command, "--report", str(self.report), *more],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment,
        )

    def until_ready(self) -> None:
        assert self.process is not None and self.process.stdout is not None
        line = self.process.stdout.readline()
        if line != "ready\n":
            raise RuntimeError(f"{self.name} said {line!r} and ended with {self.process.wait()}")

    def go(self) -> None:
        """Sends the line that it waits for."""
        assert self.process is not None and self.process.stdin is not None
        try:
            self.process.stdin.write("\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            pass

    def kill(self) -> None:
        assert self.process is not None
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def wait(self) -> None:
        assert self.process is not None
        if self.process.wait() != 0:
            raise RuntimeError(f"{self.name} ended with status {self.process.returncode}")

    def facts(self) -> dict[str, Any]:
        facts: dict[str, Any] = json.loads(self.report.read_text())
        return facts


def pipeline(options: argparse.Namespace, server: Server, output: Path) -> dict[str, Component]:
    """All components, by name, not started yet."""
    each = ["--group-file", str(server.group_file)]
    if options.transport != "default":
        each += ["--address", address_of(server.group_file, options.transport)]
    if options.batch:
        each += ["--batch", str(options.batch)]
    window = ["--window", str(options.window), "--step", str(options.step)]
    window += ["--iterations", str(options.iterations)]
    more: dict[str, tuple[str, list[str]]] = {
        "acquisition": ("acquisition.py", scan_arguments(options) + ["--pace", str(options.pace)]),
        "distribution": ("distribution.py", []),
        "denoising": ("denoising.py", []),
        "viewer": ("viewer.py", ["--output", str(output)]),
    }
    for rank in range(options.ranks):
        more[f"reconstruction-{rank}"] = ("reconstruction.py", [*window, "--rank", str(rank)])
    return {
        name: Component(name, [sys.executable, str(HERE / file), *each, *arguments], output / f"{name}.json")
        for name, (file, arguments) in more.items()
    }


def scan_arguments(options: argparse.Namespace) -> list[str]:
    arguments = ["--scan", str(options.scan), "--projections", str(options.projections)]
    return arguments if options.center is None else [*arguments, "--center", str(options.center)]


def address_of(group_file: Path, transport: str) -> str:
    """The server's address for a transport."""
    endpoints: list[str] = json.loads(group_file.read_text())["endpoints"]
    for endpoint in endpoints:
        if endpoint.startswith(f"{transport}://"):
            return endpoint
    raise ValueError(f"the server has no {transport} address, only {', '.join(endpoints)}")


def make_topics(driver: thalweg.Driver, options: argparse.Namespace, slice_bytes: int) -> None:
    kind: dict[str, Any] = {"storage": options.storage}
    if options.storage == "disk":
        kind["durability"] = options.durability
    driver.create_topic("projections", **kind)
    # Of large slices and pictures the newest are kept, and what the next component has not seen.
    keep = {"bytes": 4 * slice_bytes}
    driver.create_topic("rows", partitions=options.ranks, partition_selector="explicit", **kind)
    if options.storage == "memory":
        # Slower readers may be that far behind, as over ZeroMQ, which keeps up to 1,000 messages of any size.
        kind["storage"] = ("memory", {"bytes_max": max(1 << 30, 128 * slice_bytes)})
    for topic, reader in (("slices", "denoising"), ("pictures", "viewer")):
        driver.create_topic(
            topic, partitions=options.ranks, partition_selector="explicit",
            retention=keep, keep_until_acknowledged=[reader], **kind,
        )


def run_together(
    components: dict[str, Component], kills: Sequence[str], driver: thalweg.Driver, options: argparse.Namespace
) -> float:
    """Runs all at once and kills some on the way. Returns the seconds from first to last."""
    others = [one for name, one in components.items() if name != "acquisition"]
    for one in others:
        one.start("--wait")
    # The acquisition waits before its last third until the killing is over, so
    # that there is always something to be killed in the middle of.
    acquisition = components["acquisition"]
    hold = ["--hold-at", str(2 * options.projections // 3)] if kills else []
    acquisition.start("--wait", *hold)
    for one in components.values():
        one.until_ready()
    begun = time.time()
    for one in others:
        one.go()
    acquisition.go()
    made = {
        "acquisition": "projections", "distribution": "rows", "reconstruction": "slices",
        "denoising": "pictures", "viewer": "pictures",
    }
    for name in kills:
        topic = driver.open_topic(made[name.partition("-")[0]])
        enough = (2 * options.projections // 3 - 21) // options.step * len(topic.partitions)
        while sum_of_ends(topic) < enough // 2:
            time.sleep(0.002)
        components[name].kill()
        print(f"{name}: killed when {sum_of_ends(topic)} events were in {topic.name}", flush=True)
        components[name].start()
    if "acquisition" not in kills:
        acquisition.go()
    for one in components.values():
        one.wait()
    return time.time() - begun


def sum_of_ends(topic: thalweg.Topic) -> int:
    topic.refresh()
    return sum(partition.end for partition in topic.partitions)


def run_one_after_another(components: dict[str, Component]) -> float:
    """Each runs when those before it have ended."""
    begun = time.time()
    order = sorted(components.values(), key=lambda one: COMPONENTS.index(one.name.partition("-")[0]))
    for one in order:
        one.start()
        one.wait()
        print(f"{one.name}: ended", flush=True)
    return time.time() - begun


def reference(scan: Scan, options: argparse.Namespace) -> list[np.ndarray]:
    """What each rank's slices have to be: the same computation without a stream."""
    white, dark = np.mean(scan.white, 0), np.mean(scan.dark, 0)
    slices = []
    for rank in range(options.ranks):
        rows = rows_of_rank(rank, options.ranks, scan.rows)
        window = Window(scan.columns, scan.center, len(rows), options.window, options.iterations)
        used = 0
        for metadata, frame in scan.events():
            if "projection" in metadata and frame is not None:
                window.add(metadata["angle"], normalised(frame, white, dark)[rows.start : rows.stop])
                used += 1
                if used % options.step == 0:
                    window.reconstruct()
        if used % options.step:
            window.reconstruct()
        slices.append(window.slices)
    return slices


def newest_slices(driver: thalweg.Driver, rank: int) -> tuple[dict[str, Any], np.ndarray]:
    """The last slices that a rank published, as they are stored; its end is behind them."""
    topic = driver.open_topic("slices")
    event = topic.fetch(rank, topic.partitions[rank].end - 2, timeout=60)[0]
    slices = np.frombuffer(topic.read_data(event), np.float32).reshape(event.metadata["shape"])
    return event.metadata, slices


def likeness(slices: np.ndarray, truth: np.ndarray) -> dict[str, float]:
    """Correlation, and root mean square error in units of the truth's spread."""
    if not slices.any():
        return {}  # nothing was computed
    error = float(np.sqrt(np.mean((slices - truth) ** 2)))
    return {
        "correlation": float(np.corrcoef(slices.ravel(), truth.ravel())[0, 1]),
        "error": error / float(truth.std()),
    }


def check(driver: thalweg.Driver, scan: Scan, options: argparse.Namespace) -> dict[str, Any]:
    """Compares what is stored with what should be."""
    expected = reference(scan, options) if options.reference else None
    steps = -(-len(scan.projections) // options.step)
    counts = {name: sum_of_ends(driver.open_topic(name)) for name in ("projections", "rows", "slices", "pictures")}
    should = {
        "projections": sum(1 for _ in scan.events()),
        "rows": options.ranks * (len(scan.projections) + 1),
        "slices": options.ranks * (steps + 1),
        "pictures": options.ranks * (steps + 1),
    }
    ranks = []
    for rank in range(options.ranks):
        metadata, slices = newest_slices(driver, rank)
        rows = rows_of_rank(rank, options.ranks, scan.rows)
        found: dict[str, Any] = {"rank": rank, "rows": list(rows), "projections": metadata["projections"]}
        if expected is not None:
            found["as_without_stream"] = bool(np.array_equal(slices, expected[rank]))
        if scan.phantom is not None:
            found |= likeness(slices, scan.phantom[rows.start : rows.stop])
        ranks.append(found)
    good = counts == should and all(
        one["projections"] == len(scan.projections) and one.get("as_without_stream", True) for one in ranks
    )
    return {"events": counts, "expected_events": should, "ranks": ranks, "good": good}


def run(options: argparse.Namespace, output: Path) -> dict[str, Any]:
    """One run of the pipeline. Returns what was found."""
    output.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(prefix="thalweg-tomography-", dir=options.scratch))
    scan = read_scan(options.scan, options.projections, options.center)
    server = Server(scratch)
    components: dict[str, Component] = {}
    try:
        components = pipeline(options, server, output)
        with thalweg.Driver(server.group_file, connect_timeout=60) as driver:
            rows = len(rows_of_rank(0, options.ranks, scan.rows))
            make_topics(driver, options, 4 * rows * scan.columns**2)
            if options.one_after_another:
                elapsed = run_one_after_another(components)
            else:
                elapsed = run_together(components, options.kill, driver, options)
            server_s = processor_s(server.process.pid)
            facts = check(driver, scan, options)
    finally:
        for one in components.values():
            if one.process is not None and one.process.poll() is None:
                one.process.kill()
        server.stop()
        shutil.rmtree(scratch, ignore_errors=True)
    parts = {name: one.facts() for name, one in components.items()}
    return {
        "system": "thalweg", "elapsed_s": elapsed, "server_cpu_s": server_s, "killed": options.kill,
        "one_after_another": options.one_after_another,
        "cpu_s": server_s + sum(part["cpu_s"] for part in parts.values()),
        "components": parts, "storage": options.storage, "durability": options.durability,
        "transport": options.transport, **facts,
    }


def options_of_run(description: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("output", type=Path)
    parser.add_argument("--scan", type=Path, help="an HDF5 file; without it a phantom is scanned")
    parser.add_argument("--center", type=float, help="column of the rotation axis; the middle without it")
    parser.add_argument("--projections", type=int, default=192)
    parser.add_argument("--rows", type=int, default=2, help="of the phantom's scan")
    parser.add_argument("--columns", type=int, default=64, help="of the phantom's scan")
    parser.add_argument("--ranks", type=int, default=2, help="processes that reconstruct, 2 to 64")
    parser.add_argument("--window", type=int, default=32, help="projections in the sliding window")
    parser.add_argument("--step", type=int, default=16, help="projections between published slices")
    parser.add_argument("--iterations", type=int, default=1, help="rounds over the window in each step")
    parser.add_argument("--pace", type=float, default=0, help="seconds between projections")
    parser.add_argument("--batch", type=int, help="events in a batch; without it, as it suits")
    parser.add_argument("--storage", choices=("disk", "memory"), default="disk")
    parser.add_argument("--durability", choices=("written", "synced"), default="written")
    parser.add_argument("--transport", choices=("default", "unix", "shm"), default="default")
    parser.add_argument("--scratch", type=Path, help="where the server's directory is made")
    parser.add_argument("--no-reference", dest="reference", action="store_false",
                        help="do not compute everything once more without a stream")
    return parser


def prepare(options: argparse.Namespace) -> None:
    """Makes the scan if none is given."""
    options.output.mkdir(parents=True, exist_ok=True)
    if options.scan is None:
        options.scan = options.output / "phantom.h5"
        write_phantom(options.scan, options.projections, options.rows, options.columns)
    else:
        options.projections = len(read_scan(options.scan, options.projections).projections)


def main() -> None:
    parser = options_of_run(__doc__)
    parser.add_argument("--kill", action="append", default=[], metavar="NAME",
                        help="kill this component half way and start it again: acquisition, distribution,\n"
                        "reconstruction-0, denoising, viewer; may be given several times")
    parser.add_argument("--one-after-another", action="store_true")
    options = parser.parse_args()
    # The acquisition is told to go on by being killed, so it is killed last.
    options.kill.sort(key=lambda name: name == "acquisition")
    prepare(options)
    facts = run(options, options.output)
    (options.output / "facts.json").write_text(json.dumps(facts, indent=1))
    write_report(options.output, [facts])
    for one in facts["ranks"]:
        print(json.dumps(one))
    print(f"report: {options.output / 'report.html'}")
    if not facts["good"]:
        sys.exit(f"tomography: found {facts['events']}, expected {facts['expected_events']}; see the ranks above")


if __name__ == "__main__":
    main()
