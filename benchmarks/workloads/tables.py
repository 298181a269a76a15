"""Tables and plots of the published streaming experiments.

    tables.py RESULTS.json [PAGE.md [PLOTS]]

Prints the tables in Markdown, or puts them between the two marks of a page, and draws the plots into a directory.
"""

from __future__ import annotations

import json
import statistics
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "benchmarks" / "peers"))

import plots  # noqa: E402

Runs = list[dict[str, Any]]

MARKS = "<!-- figures: benchmarks/workloads/tables.py -->", "<!-- end of figures -->"
TITLES = {
    "dstream-sharing": "Dstream, work sharing: 16 KB",
    "lstream-sharing": "Lstream, work sharing: 1 MB",
    "dstream-feedback": "Dstream, work sharing with feedback: 16 KB both ways",
    "lstream-feedback": "Lstream, work sharing with feedback: 1 MB both ways",
    "generic-broadcast": "Generic, broadcast: 4 MB",
    "generic-gather": "Generic, broadcast and gather: 4 MB both ways",
}
ARCHITECTURES = {
    "direct": "direct",
    "proxied:relay": "proxied, Thalweg relay",
    "proxied:haproxy": "proxied, HAProxy",
    "managed:gateway": "managed, Thalweg gateway",
    "managed:haproxy": "managed, HAProxy",
}


def of(runs: Runs, **fields: Any) -> Runs:
    return [run for run in runs if all(run[key] == value for key, value in fields.items())]


def names(runs: Runs, key: str) -> list[Any]:
    return list(dict.fromkeys(run[key] for run in runs))


def rate(run: dict[str, Any]) -> float:
    return float(run["wall"]["messages_per_second"])


def half(run: dict[str, Any]) -> float:
    """Milliseconds to the reply, median."""
    return float(run["rtt"]["p50_ns"]) / 1e6


def spread(runs: Runs, figure: Callable[[dict[str, Any]], float]) -> dict[str, float]:
    found = [figure(run) for run in runs]
    return {"median": statistics.median(found), "min": min(found), "max": max(found)}


def number(value: float) -> str:
    return f"{value:.2g}" if value < 10 else f"{float(f'{value:.3g}'):,.0f}"


def cell(runs: Runs, figure: Callable[[dict[str, Any]], float]) -> str:
    if not runs:
        return ""
    told = {key: number(value) for key, value in spread(runs, figure).items()}
    text = told["median"]
    if told["min"] != told["max"]:
        text += f" [{told['min']} to {told['max']}]"
    return text if all(is_whole(run) for run in runs) else f"{text} (not whole)"


def is_whole(run: dict[str, Any]) -> bool:
    """Whether every message came, once and in order."""
    counts = run["received"]
    bad = ("lost", "damaged", "duplicates", "out_of_order", "foreign", "unaccounted")
    return not any(counts.get(key) for key in bad) and not run["unanswered"]


def grid(runs: Runs, figure: Callable[[dict[str, Any]], float]) -> list[str]:
    """Architectures and numbers of consumers down, contenders across."""
    contenders = names(runs, "on")
    lines = ["| architecture | consumers | " + " | ".join(contenders) + " |", "| --- | --- |" + " --- |" * len(contenders)]
    for architecture in ARCHITECTURES:
        here = of(runs, architecture=architecture)
        for consumers in sorted(names(here, "consumers")):
            some = of(here, consumers=consumers)
            cells = [cell(of(some, on=contender), figure) for contender in contenders]
            lines.append(f"| {ARCHITECTURES[architecture]} | {consumers} | " + " | ".join(cells) + " |")
    return lines


def processors(runs: Runs) -> list[str]:
    """CPU seconds a gigabyte of server, proxies and clients."""
    contenders = names(runs, "on")
    lines = ["| architecture | " + " | ".join(contenders) + " |", "| --- |" + " --- |" * len(contenders)]

    def told(some: Runs) -> str:
        parts = []
        for key in ("server", "proxies", "clients"):
            found = [run["cpu_seconds_per_gigabyte"][key] for run in some]
            known = [value for value in found if value is not None]
            parts.append(f"{statistics.median(known):.1f}" if known else "–")
        return " / ".join(parts) if some else ""

    for architecture in ARCHITECTURES:
        some = of(runs, architecture=architecture)
        if some:
            cells = [told(of(some, on=contender)) for contender in contenders]
            lines.append(f"| {ARCHITECTURES[architecture]} | " + " | ".join(cells) + " |")
    return lines


def tables(runs: Runs) -> str:
    parts: list[str] = []
    for experiment, title in TITLES.items():
        some = of(runs, experiment=experiment)
        if not some:
            continue
        parts += [f"### {title}", "", "Messages a second.", "", *grid(some, rate), ""]
        if all(run["rtt"] for run in some):
            parts += ["Median time to the reply, ms.", "", *grid(some, half), ""]
    some = of(runs, experiment="lstream-sharing", consumers=4)
    if some:
        parts += ["### Processor seconds a gigabyte", "", "Lstream, work sharing, 4 consumers: server / proxies / clients."]
        parts += ["", *processors(some), ""]
    return "\n".join(parts)


def draw(runs: Runs, directory: Path) -> None:
    """A plot of each experiment with four consumers, and of the rate by consumers."""
    for experiment, title in TITLES.items():
        some = of(runs, experiment=experiment, consumers=4)
        bars = []
        for architecture, name in ARCHITECTURES.items():
            for contender in names(some, "on"):
                here = of(some, architecture=architecture, on=contender)
                if here:
                    short = name.replace("Thalweg ", "")
                    bars.append((f"{contender}: {short}", spread(here, rate)))
        if bars:
            plots.bars(directory / f"workload-{experiment}.svg", title, "messages/s", bars)
    some = of(runs, experiment="dstream-sharing", architecture="direct")
    counts = sorted(names(some, "consumers"))
    if len(counts) > 1:
        rows = []
        for contender in names(some, "on"):
            here = [of(some, on=contender, consumers=count) for count in counts]
            if all(here):
                rows.append((contender, [spread(cell, lambda run: rate(run) / 1000) for cell in here]))
        steps = [str(count) for count in counts]
        title = "Dstream, work sharing, by producers and consumers"
        plots.lines(directory / "workload-scale.svg", title, "thousand messages/s", steps, rows)


def main() -> None:
    runs = json.loads(Path(sys.argv[1]).read_text())["runs"]
    told = tables(runs)
    if len(sys.argv) < 3:
        print(told)
        return
    page = Path(sys.argv[2])
    before, rest = page.read_text().split(MARKS[0])
    _, after = rest.split(MARKS[1])
    page.write_text(f"{before}{MARKS[0]}\n\n{told}\n{MARKS[1]}{after}")
    if len(sys.argv) > 3:
        draw(runs, Path(sys.argv[3]))


if __name__ == "__main__":
    main()
