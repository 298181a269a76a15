"""Draws the plots of docs/benchmarks.md, docs/plots/*.svg, from benchmarks/results/*.json.

    python3 benchmarks/draw_page.py

Needs nothing but Python. New figures are a new file of results (its date, its subject, its commit) and its name here;
`make bench-peers` leaves the raw one in build/peers/results/peers.json.
"""

import json
import statistics
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "benchmarks" / "peers"))

import plots  # noqa: E402

# The run of `make bench-sites` that is in docs/benchmarks-sites.md.
SITES = "2026-11-26-sites"
RESULTS, PLOTS = ROOT / "benchmarks" / "results", ROOT / "docs" / "plots"


def results(name: str) -> dict:
    return json.loads((RESULTS / f"{name}.json").read_text())


def table(name: str, title: str) -> list[list]:
    """The rows of one table of a file of results."""
    return next(table["rows"] for table in results(name)["tables"] if table["title"] == title)


def spread(value: dict | float, factor: float = 1.0) -> dict:
    """A figure with its least and its most, where these were kept."""
    if not isinstance(value, dict):
        value = {"median": value, "min": value, "max": value}
    return {key: value[key] * factor for key in ("median", "min", "max")}


def case(name: str, key: str, factor: float = 1.0) -> list[tuple[str, dict]]:
    """One case of `make bench-peers`, a bar for each contender."""
    contenders = results("2026-11-22-peers")[name]["results"]
    return [(contender, spread(keys[key], factor)) for contender, keys in contenders.items()]


def produce() -> None:
    bars = case("produce-1k", "events_per_s", 1e-6)
    plots.bars(PLOTS / "produce-1k.svg", "Producing events of 1,000 B", "million events/s", bars)


def latency() -> None:
    rows = table("2026-11-22-peers-c3b7b3e", "Latency of one event of 128 B at a time, µs")
    bars = [(row[0], spread(row[1])) for row in rows]
    plots.bars(PLOTS / "latency.svg", "One event of 128 B at a time", "us, median", bars, least=1)


def sharing() -> None:
    rows = table("2026-11-22-queues-b6ca071", "thousand events/s, shared through a queue")
    drawn = [(row[0].split(", ", 1)[1], [spread(cell) for cell in row[1:5]]) for row in rows[:3]]
    steps = ["1", "4", "16", "64"]
    title = "Events of 16 KiB through a queue, by producers and consumers"
    plots.lines(PLOTS / "sharing.svg", title, "thousand events/s", steps, drawn)


def flowcept() -> None:
    rows, bars, units = table("2026-11-22-flowcept-90fbce6", "units, batch"), [], ""
    for row in rows:
        units = row[0] or units
        if units in ("light, 10", "light, 1,000", "heavy, 10", "heavy, 100"):
            value = spread(row[2])
            bars.append((f"{row[1]}: {units}", value))
    title = "Share of a run that Flowcept is in flush"
    plots.bars(PLOTS / "flowcept.svg", title, "% of the run", bars, least=0.001)


def tomography() -> None:
    rows = table("2026-11-23-tomography-bfef418", "At published size (2)")
    bars = [(f"Thalweg: {row[0]}", spread(row[2])) for row in rows]
    title = "Tomography: time blocked in the stream, share of ZeroMQ's"
    plots.bars(PLOTS / "tomography.svg", title, "1 is ZeroMQ", bars, least=0.001)


def steps() -> None:
    contenders = results("2026-11-26-steps-be0192d")["contenders"]
    bars = [
        (name, spread(of["lengths"]["25000000"]["bytes_per_s"], 1e-6))
        for name, of in contenders.items()
    ]
    plots.bars(PLOTS / "steps.svg", "Steps of 25 MB, one rank to one rank", "MB/s", bars)


def sites() -> None:
    runs = [run for run in results(SITES)["grid"] if run["state"] == "done"]
    drawn = []
    for way in dict.fromkeys(run["way"] for run in runs):
        cells = [
            [
                run["mb_per_s"]
                for run in runs
                if (run["way"], run["work"], run["bytes_each"], run["clients"])
                == (way, "share", 16 << 10, clients)
            ]
            for clients in (1, 4, 16, 64)
        ]
        # What stands still has no line.
        if all(cells):
            row = [
                {"median": statistics.median(cell), "min": min(cell), "max": max(cell)}
                for cell in cells
            ]
            drawn.append((way, row))
    title = "Messages of 16 KiB, shared by clients behind one port"
    plots.lines(PLOTS / "sites.svg", title, "MB/s", ["1", "4", "16", "64"], drawn)


if __name__ == "__main__":
    for draw in (produce, latency, sharing, flowcept, tomography, steps, sites):
        draw()
