"""The pipeline over Thalweg and over ZeroMQ, in turns, at the published sizes.

    python compare.py OUTPUT [--scale 0.1] [--rounds 3] [--ranks 2]

At scale 1 a scan has 1,500 projections of 2 rows and 2,560 columns: 1,500 events of 20 KB, 1,500 times
the ranks of 10 KB, and 94 times the ranks of 25 MB. A scale makes fewer projections, none of them smaller.
With --batches it sweeps over batches and ranks instead, over Thalweg alone.
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
from run import Component, options_of_run, prepare, run, scan_arguments
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
            found["correlation"] = float(np.corrcoef(slices[rank].ravel(), truth.ravel())[0, 1])
        ranks.append(found)
    return {
        "system": "zeromq", "elapsed_s": elapsed, "cpu_s": sum(part["cpu_s"] for part in parts.values()),
        "components": parts, "ranks": ranks, "killed": [], "one_after_another": False,
        "good": all(part["ended"] for part in parts.values()),
    }


def ratios(runs: list[dict[str, Any]]) -> list[list[str]]:
    """Blocked time for each stream: Thalweg's as a share of ZeroMQ's, round by round."""
    rows = []
    for component, role in ROLES:
        shares, worst = [], []
        for ours, theirs in zip(
            (one for one in runs if one["system"] == "thalweg"), (one for one in runs if one["system"] == "zeromq")
        ):
            their_time = figure(theirs, component, role, "blocked_us")
            if their_time:
                shares.append(figure(ours, component, role, "blocked_us") / their_time)
            p99 = figure(ours, component, role, "p99_us")
            if p99:
                worst.append(figure(ours, component, role, "max_us") / p99)
        if shares:
            rows.append([f"{component}, {role}", spread(shares, 3), spread(worst, 1)])
    return rows


def compare(options: argparse.Namespace) -> list[dict[str, Any]]:
    """Rounds of one run each, in turns; the one that begins changes."""
    runs: list[dict[str, Any]] = []
    for number in range(options.rounds):
        systems = ["thalweg", "zeromq"][:: 1 if number % 2 == 0 else -1]
        for system in systems:
            load = os.getloadavg()[0]
            # The first run's picture is the report's.
            output = options.output if not runs else options.output / f"{system}-{number}"
            found = (run if system == "thalweg" else run_zeromq)(options, output)
            found |= {"label": system, "load_before": load, "round": number}
            runs.append(found)
            print(
                f"round {number}, {system}: {found['elapsed_s']:.2f} s, processors {found['cpu_s']:.2f} s, "
                f"load before {load:.1f}", flush=True,
            )
    runs.sort(key=lambda one: one["round"])
    return runs


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
    parser.set_defaults(columns=2560, rows=2, reference=False, projections=None)
    parser.add_argument("--scale", type=float, default=1.0, help="of the number of projections")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--reference", action="store_true", help="compute everything once more without a stream")
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
    runs = compare(options)
    (options.output / "facts.json").write_text(json.dumps(runs, indent=1))
    totals = [
        [label, spread([one["elapsed_s"] for one in mine], 2), spread([one["cpu_s"] for one in mine], 2)]
        for label in ("thalweg", "zeromq")
        for mine in [[one for one in runs if one["label"] == label]]
    ]
    text = "\n\n".join((
        markdown(["", "s, first to last", "processors, s"], totals),
        markdown(["", "blocked, Thalweg / ZeroMQ", "Thalweg's largest / 99th percentile"], ratios(runs)),
        markdown(COST_HEAD, cost_rows(runs)),
    ))
    (options.output / "comparison.md").write_text(text + "\n")
    print(text)
    ours = [one for one in runs if one["system"] == "thalweg"]
    write_report(options.output, ours + [one for one in runs if one["system"] == "zeromq"])
    print(f"report: {options.output / 'report.html'}")
    if not all(one["good"] for one in runs):
        sys.exit("tomography: something is missing; see facts.json")


if __name__ == "__main__":
    main()
