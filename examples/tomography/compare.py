"""The pipeline over Thalweg and over ZeroMQ, in turns, at the published sizes.

    python compare.py OUTPUT [--scale 0.1] [--rounds 3] [--ranks 2]

At scale 1 a scan has 1,500 projections of 2 rows and 2,560 columns: 1,500 events of 20 KB, 1,500 times
the ranks of 10 KB, and 94 times the ranks of 25 MB. A scale makes fewer projections, none of them smaller.
With --suite it takes the three measurements of docs/benchmarks.md instead, and with --batches it sweeps over
batches and ranks, over Thalweg alone.
Writes `facts.json`, `comparison.md` and `report.html` into OUTPUT.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from report import COST_HEAD, ROLES, cost_rows, figure, markdown, spread, write_report
from run import Component, likeness, options_of_run, prepare, run, scan_arguments
from scan import read_scan
from sirt import rows_of_rank

PROJECTIONS = 1500
HERE = Path(__file__).resolve().parent


def run_zeromq(options: argparse.Namespace, output: Path) -> dict[str, Any]:
    """One run over ZeroMQ. Returns the same facts as a run over Thalweg."""
    output.mkdir(parents=True, exist_ok=True)
    meeting = Path(tempfile.mkdtemp(prefix="tomography-zeromq-"))
    each = ["--meeting", str(meeting), "--output", str(output), "--ranks", str(options.ranks)]
    each += [*scan_arguments(options), "--pace", str(options.pace), "--window", str(options.window)]
    each += ["--step", str(options.step), "--iterations", str(options.iterations)]
    roles = [("acquisition", 0), ("distribution", 0), ("denoising", 0), ("viewer", 0)]
    roles += [("reconstruction", rank) for rank in range(options.ranks)]
    components = {}
    for role, rank in roles:
        name = f"{role}-{rank}" if role == "reconstruction" else role
        command = [sys.executable, str(HERE / "zeromq.py"), role, *each, "--rank", str(rank)]
        if role == "reconstruction":
            command += ["--last", str(meeting / f"slices-{rank}.npy")]
        components[name] = Component(name, command, output / f"{name}.json")
    try:
        for one in components.values():
            one.start()
        for one in components.values():
            one.until_ready()
        begun = time.time()
        for name, one in components.items():
            if name != "acquisition":
                one.go()
        components["acquisition"].go()
        for one in components.values():
            one.wait()
        elapsed = time.time() - begun
        slices = [np.load(meeting / f"slices-{rank}.npy") for rank in range(options.ranks)]
    finally:
        for one in components.values():
            if one.process is not None and one.process.poll() is None:
                one.process.kill()
        shutil.rmtree(meeting, ignore_errors=True)
    parts = {name: one.facts() for name, one in components.items()}
    scan = read_scan(options.scan, options.projections, options.center)
    ranks = []
    for rank in range(options.ranks):
        rows = rows_of_rank(rank, options.ranks, scan.rows)
        found: dict[str, Any] = {"rank": rank, "rows": list(rows), "projections": len(scan.projections)}
        if scan.phantom is not None:
            truth = scan.phantom[rows.start : rows.stop]
            found |= likeness(slices[rank], truth)
        ranks.append(found)
    return {
        "system": "zeromq", "elapsed_s": elapsed, "cpu_s": sum(part["cpu_s"] for part in parts.values()),
        "components": parts, "ranks": ranks, "killed": [], "one_after_another": False,
        "good": all(part["ended"] for part in parts.values()),
    }


EVENTS_MIN = 20
"""Streams of fewer events have no line among the ratios: one late process makes all of it."""

SUITE: dict[str, dict[str, Any]] = {
    "small events, as fast as it goes": {"iterations": 0, "step": 1 << 30},
    "small events, a projection every 2 ms": {"iterations": 0, "step": 1 << 30, "pace": 0.002},
    "large slices, computed": {"iterations": 1, "step": 4, "window": 4, "projections": PROJECTIONS // 10},
}
"""What is measured at published sizes: small events alone, with one slice at
the end; and slices of 25 MB, really computed, a tenth of the projections, four to a step."""


def contenders(options: argparse.Namespace) -> list[str]:
    ours = {"memory": "thalweg, memory", "disk": f"thalweg, {options.durability}"}
    return [*(ours[storage] for storage in options.storages), "zeromq"]


def ratios(runs: list[dict[str, Any]]) -> list[list[str]]:
    """Blocked time for each stream as a share of ZeroMQ's, round by round, and
    the largest call beside the 99th percentile.
    """
    theirs = [run for run in runs if run["system"] == "zeromq"]
    rows = []
    for component, role in ROLES:
        for label in sorted({run["label"] for run in runs if run["system"] == "thalweg"}):
            shares, worst = [], []
            for mine, other in zip((run for run in runs if run["label"] == label), theirs):
                time_of = [figure(one, component, role, "blocked_us") for one in (mine, other)]
                if all(time_of) and figure(other, component, role, "events") >= EVENTS_MIN:
                    shares.append(time_of[0] / time_of[1])
                    worst.append(figure(mine, component, role, "max_us") / figure(mine, component, role, "p99_us"))
            if shares:
                rows.append([f"{component}, {role}", label, spread(shares, 3), spread(worst, 1)])
    return rows


def totals(runs: list[dict[str, Any]]) -> list[list[str]]:
    """How long it took, and what it cost."""
    rows = []
    for label in sorted({run["label"] for run in runs}):
        mine = [run for run in runs if run["label"] == label]
        figures = [spread([one[name] for one in mine], 2) for name in ("elapsed_s", "cpu_s")]
        loads = spread([one["load_before"] for one in mine])
        rows.append([label, *figures, loads])
    return rows


def compare(options: argparse.Namespace, output: Path) -> list[dict[str, Any]]:
    """Rounds of one run each, in turns; the one that begins changes."""
    runs: list[dict[str, Any]] = []
    for number in range(options.rounds):
        labels = contenders(options)
        labels = labels[number % len(labels) :] + labels[: number % len(labels)]
        for label in labels:
            load = os.getloadavg()[0]
            own = output / f"{label.replace(', ', '-')}-{number}"
            if label == "zeromq":
                found = run_zeromq(options, own)
            else:
                options.storage = "memory" if label.endswith("memory") else "disk"
                found = run(options, own)
                shutil.copyfile(own / "picture.png", output / "picture.png")
            found |= {"label": label, "load_before": load, "round": number}
            runs.append(found)
            print(
                f"round {number}, {label}: {found['elapsed_s']:.2f} s, processors {found['cpu_s']:.2f} s, "
                f"load before {load:.1f}", flush=True,
            )
    runs.sort(key=lambda one: (one["system"] == "zeromq", one["label"], one["round"]))
    return runs


def tables(runs: list[dict[str, Any]]) -> str:
    return "\n\n".join((
        markdown(["", "s, first to last", "processors, s", "load of the machine before"], totals(runs)),
        markdown(["", "", "blocked, share of ZeroMQ's", "largest / 99th percentile"], ratios(runs)),
        markdown(COST_HEAD, [row for row in cost_rows(runs) if int(row[2].replace(",", "")) >= EVENTS_MIN]),
    ))


def suite(options: argparse.Namespace) -> None:
    """The three measurements of docs/benchmarks.md."""
    text, everything = [], {}
    for number, (title, settings) in enumerate(SUITE.items()):
        chosen = argparse.Namespace(**{**vars(options), **settings})
        runs = compare(chosen, options.output / str(number))
        everything[title] = runs
        text.append(f"### {title}\n\n{tables(runs)}")
    (options.output / "facts.json").write_text(json.dumps(everything, indent=1))
    (options.output / "comparison.md").write_text("\n\n".join(text) + "\n")
    print("\n\n".join(text))


def sweep(options: argparse.Namespace) -> None:
    """Every batch with every number of ranks."""
    lines, found = [], []
    for ranks, batch in itertools.product(options.sweep_ranks, [None, *options.batches]):
        options.ranks, options.batch = ranks, batch
        runs = [run(options, options.output / f"{ranks}-{batch}-{n}") for n in range(options.rounds)]
        found += [{"ranks": ranks, "batch": batch, **one} for one in runs]
        cells = [
            spread([figure(one, component, role, "blocked_us") for one in runs])
            for component, role in (("distribution", "produce"), ("reconstruction", "consume"))
        ]
        elapsed = spread([one["elapsed_s"] for one in runs], 2)
        lines.append([str(ranks), "adaptive" if batch is None else str(batch), *cells, elapsed])
        print(" | ".join(lines[-1]), flush=True)
    head = ["ranks", "batch", "distribution, produce: blocked us/event", "reconstruction, consume", "s, first to last"]
    (options.output / "sweep.md").write_text(markdown(head, lines) + "\n")
    (options.output / "facts.json").write_text(json.dumps(found, indent=1))


def main() -> None:
    parser = options_of_run(__doc__)
    parser.set_defaults(columns=2560, rows=2, reference=False, projections=None, transport="shm")
    parser.add_argument("--scale", type=float, default=1.0, help="of the number of projections")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--reference", action="store_true", help="compute everything once more without a stream")
    parser.add_argument("--storages", nargs="+", choices=("memory", "disk"), default=["memory", "disk"],
                        help="of Thalweg's topics, each a contender of its own")
    parser.add_argument("--suite", action="store_true", help="the three measurements of docs/benchmarks.md")
    parser.add_argument("--batches", type=int, nargs="+", help="sweep over these batches: 1 2 4 8 16 32 64")
    parser.add_argument("--sweep-ranks", type=int, nargs="+", default=[2], help="and over these numbers of ranks")
    options = parser.parse_args()
    options.kill, options.one_after_another = [], False
    if options.projections is None:
        options.projections = max(1, round(PROJECTIONS * options.scale))
    prepare(options)
    if options.batches:
        sweep(options)
        return
    if options.suite:
        suite(options)
        return
    runs = compare(options, options.output)
    (options.output / "facts.json").write_text(json.dumps(runs, indent=1))
    (options.output / "comparison.md").write_text(tables(runs) + "\n")
    print(tables(runs))
    write_report(options.output, runs)
    print(f"report: {options.output / 'report.html'}")
    if not all(one["good"] for one in runs):
        sys.exit("tomography: something is missing; see facts.json")


if __name__ == "__main__":
    main()
