"""The one-page report of a run, or of several that are compared."""

from __future__ import annotations

import base64
import html
import statistics
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from PIL import Image

PAGE = """<!doctype html>
<html lang="en"><meta charset="utf-8"><title>Streaming tomography</title>
<style>
 body {{ font: 16px/1.5 system-ui, sans-serif; max-width: 68rem; margin: 2rem auto; padding: 0 1rem; color: #223 }}
 table {{ border-collapse: collapse; margin: 1rem 0 }} td, th {{ padding: .25rem .8rem; text-align: right; border-bottom: 1px solid #dde }}
 td:first-child, th:first-child {{ text-align: left }} td {{ font-variant-numeric: tabular-nums }}
 img {{ max-width: 100%; background: #000 }} .ok {{ color: #176b34; font-weight: 600 }} .bad {{ color: #a11; font-weight: 600 }}
</style>
<h1>Streaming tomography</h1>
<p class="{verdict_class}">{verdict}</p>
<img src="data:image/png;base64,{picture}" alt="reconstructed slices, denoised">
{truth}
<h2>What was reconstructed</h2>{ranks}
<h2>What the streams cost</h2>
<p>Microseconds for each event. <em>Blocked</em> is the time in calls, flush and final wait included, without the time for which
there was nothing yet to be had; median to largest are of single calls. {runs}</p>
{cost}
</html>
"""

ROLES = (
    ("acquisition", "produce"), ("distribution", "consume"), ("distribution", "produce"),
    ("reconstruction", "consume"), ("reconstruction", "produce"), ("denoising", "consume"),
    ("denoising", "produce"), ("viewer", "consume"),
)
"""Components, and what they do with a stream, in the order of the pipeline."""


def figure(facts: dict[str, Any], component: str, role: str, name: str) -> float:
    """A figure of a component; of several ranks the mean by events, or the largest."""
    parts = [
        part[role] for key, part in facts["components"].items()
        if key.partition("-")[0] == component and part.get(role, {}).get("events")
    ]
    if not parts:
        return 0.0
    if name == "max_us":
        return float(max(part[name] for part in parts))
    if name == "min_us":
        return float(min(part[name] for part in parts))
    if name == "events":
        return float(sum(part[name] for part in parts))
    return float(sum(part[name] * part["events"] for part in parts) / sum(part["events"] for part in parts))


def spread(values: Iterable[float], digits: int = 1) -> str:
    """Median, and least and greatest behind it if there are several values."""
    values = list(values)
    middle = f"{statistics.median(values):,.{digits}f}"
    if len(values) == 1:
        return middle
    return f"{middle} [{min(values):,.{digits}f} to {max(values):,.{digits}f}]"


def cost_rows(runs: Sequence[dict[str, Any]]) -> list[list[str]]:
    """A line for each system and stream; medians over its runs."""
    rows = []
    for component, role in ROLES:
        for system in sorted({run["label"] for run in runs}):
            mine = [run for run in runs if run["label"] == system]
            events = figure(mine[0], component, role, "events")
            if not events:
                continue
            figures = [
                spread([figure(run, component, role, name) for run in mine])
                for name in ("blocked_us", "in_calls_us", "min_us", "median_us", "p99_us", "max_us")
            ]
            rows.append([f"{component}, {role}", system, f"{events:,.0f}", *figures])
    return rows


COST_HEAD = ["", "", "events", "blocked", "in calls, all", "least", "median", "99th percentile", "largest"]


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """An HTML table."""
    lines = ["".join(f"<th>{html.escape(cell)}</th>" for cell in head)]
    lines += ["".join(f"<td>{html.escape(cell)}</td>" for cell in row) for row in rows]
    return "<table>" + "".join(f"<tr>{line}</tr>" for line in lines) + "</table>"


def markdown(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """The same for pages."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def truth(output: Path) -> str:
    """The phantom beside it, where the scan was made here."""
    scan = output / "phantom.h5"
    if not scan.exists():
        return ""
    with h5py.File(scan, "r") as file:
        stride = -(-file["phantom"].shape[-1] // 512)
        slices = np.hstack(list(file["phantom"][:4, ::stride, ::stride]))
    scaled = (np.clip(slices / slices.max(), 0, 1) * 255).astype(np.uint8)
    Image.fromarray(scaled).save(output / "phantom.png")
    return f"<p>The phantom itself:</p>{embedded(output / 'phantom.png', 'the phantom')}"


def embedded(path: Path, text: str) -> str:
    data = base64.b64encode(path.read_bytes()).decode()
    return f'<img src="data:image/png;base64,{data}" alt="{text}">'


def verdict(facts: dict[str, Any]) -> str:
    if not facts["good"]:
        return f"Found {facts['events']}, expected {facts['expected_events']}: something is wrong."
    killed = f" {', '.join(facts['killed'])} killed with SIGKILL on the way and started again." if facts["killed"] else ""
    turns = " Each component ran when those before it had ended." if facts["one_after_another"] else ""
    same = all(one.get("as_without_stream") for one in facts["ranks"])
    equal = " Bit for bit what is computed without a stream." if same else ""
    return f"Nothing is missing and nothing is there twice.{killed}{turns}{equal}"


def write_report(output: Path, runs: Sequence[dict[str, Any]]) -> None:
    """Writes `report.html`, complete in itself; the first run's picture lies in `output`."""
    first = runs[0]
    for run in runs:
        run.setdefault("label", run["system"])
    ranks = [
        [
            str(one["rank"]), ", ".join(map(str, one["rows"])), str(one["projections"]),
            f"{one['correlation']:.4f}" if "correlation" in one else "",
            f"{one['error']:.3f}" if "error" in one else "",
            {True: "yes", False: "NO"}.get(one.get("as_without_stream"), ""),
        ]
        for one in first["ranks"]
    ]
    totals = []
    for label in sorted({run["label"] for run in runs}):
        mine = [run for run in runs if run["label"] == label]
        totals.append(
            f"{label}: {spread([run['elapsed_s'] for run in mine])} s from first to last, "
            f"{spread([run['cpu_s'] for run in mine])} s of processors, the server's included."
        )
    page = PAGE.format(
        verdict=html.escape(verdict(first)),
        verdict_class="ok" if first["good"] else "bad",
        picture=base64.b64encode((output / "picture.png").read_bytes()).decode(),
        truth=truth(output),
        ranks=table(
            ["rank", "rows", "projections", "correlation with the phantom", "error / spread", "as without stream"],
            ranks,
        ),
        runs=html.escape(" ".join(totals)),
        cost=table(COST_HEAD, cost_rows(runs)),
    )
    (output / "report.html").write_text(page)
