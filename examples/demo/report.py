"""The one-page report of a run."""

from __future__ import annotations

import base64
import html
from pathlib import Path
from typing import Any

PAGE = """<!doctype html>
<html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>Thalweg: from instrument to picture</title>
<style>
 body {{ font: 16px/1.5 system-ui, sans-serif; max-width: 62rem; margin: 2rem auto; padding: 0 1rem; color: #223 }}
 table {{ border-collapse: collapse; margin: 1rem 0; width: 100% }}
 td, th {{ padding: .25rem .5rem; text-align: left; border-bottom: 1px solid #dde; overflow-wrap: break-word }}
 .n {{ text-align: right; font-variant-numeric: tabular-nums }}
 img, svg {{ display: block; width: 100%; height: auto }} img {{ background: #000 }} svg {{ max-width: 42rem }}
 .columns {{ display: flex; font-size: min(1rem, 2.6vw); margin: 0 }} .columns span {{ flex: 1; text-align: center }}
 .ok {{ color: #176b34; font-weight: 600 }} .bad {{ color: #a11; font-weight: 600 }} .small {{ color: #556; font-size: .9rem }}
</style>
<h1>From instrument to picture</h1>
<p>An acquisition process streamed {projections} projections; a reconstruction process pulled only the rows that it needed, and
published slices; a viewer drew them. The server was killed with SIGKILL when {killed_at_projection} projections were stored. A new
one was ready to serve {outage_s} s later, and the three programs went on without being told.</p>
<p class="{verdict_class}">{verdict}</p>
<p class="small">The sample is a published magnetic-resonance volume (the example that the package nibabel ships), enlarged three times. Its
projections were computed, with noise added: nothing here was measured at an instrument.</p>
<p class="columns" aria-hidden="true">{columns}</p>
<img src="data:image/png;base64,{picture}" alt="Reconstructed slices from the first to the last stage, and the sample">
<p>Each row is one slice. Above each column stands how many projections it was made of; at the right is the sample itself.</p>
<h2>How the picture gets better</h2>
{chart}
<h2>The run</h2>
<table>{rows}</table>
<h2>What the audit compared</h2>
<p>What the producers were told is stored (their journals), with a scan of every stored batch.</p>
<table>{audit}</table>
<p class="small">{where}</p>
</html>
"""

WIDTH, HEIGHT = 460, 330
LEFT, RIGHT, TOP, BOTTOM = 60, 445, 15, 275
COLOURS = ["#1b6ca8", "#c1440e", "#2a7f3e", "#7a3f9d", "#8a6d00", "#444444"]


def steps(low: float, high: float) -> list[int]:
    """Some round numbers from `low` to `high`."""
    wide = max(high - low, 1e-9)
    step = next(step for step in (1, 2, 5, 10, 20, 50, 100, 200, 500, 10**9) if wide / step <= 7)
    return [at for at in range(0, int(high) + 1, step) if at >= low]


def chart(quality: dict[str, list[list[float]]], killed_at: int) -> str:
    """Peak signal-to-noise ratio against projections used, a line for each slice, as SVG."""
    points = [point for line in quality.values() for point in line]
    last = max(point[0] for point in points)
    low, high = min(point[1] for point in points) - 1, max(point[1] for point in points) + 1

    def x(projections: float) -> float:
        return LEFT + (RIGHT - LEFT) * projections / last

    def y(decibels: float) -> float:
        return BOTTOM - (BOTTOM - TOP) * (decibels - low) / (high - low)

    parts = [f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" font-size="13" font-family="system-ui, sans-serif" fill="#223" '
             'aria-label="Peak signal-to-noise ratio of each slice, against the projections used">']
    for at in steps(low, high):
        parts.append(f'<path d="M{LEFT} {y(at):.1f}H{RIGHT}" stroke="#e2e2ea"/>'
                     f'<text x="{LEFT - 8}" y="{y(at) + 4:.1f}" text-anchor="end">{at}</text>')
    for at in steps(0, last):
        parts.append(f'<path d="M{x(at):.1f} {BOTTOM}v5" stroke="#889"/>'
                     f'<text x="{x(at):.1f}" y="{BOTTOM + 20}" text-anchor="middle">{at}</text>')
    parts.append(f'<path d="M{LEFT} {TOP}V{BOTTOM}H{RIGHT}" fill="none" stroke="#889"/>'
                 f'<text x="{(LEFT + RIGHT) / 2}" y="{BOTTOM + 40}" text-anchor="middle">projections used</text>'
                 f'<text transform="translate(16 {(TOP + BOTTOM) / 2}) rotate(-90)" text-anchor="middle">'
                 'signal-to-noise ratio, dB (peak)</text>')
    parts.append(f'<path d="M{x(killed_at):.1f} {TOP}V{BOTTOM}" stroke="#a11" stroke-width="2" stroke-dasharray="6 4"/>'
                 f'<text x="{x(killed_at) + 6:.1f}" y="{TOP + 14}" fill="#a11">server killed</text>')
    for index, (row, line) in enumerate(quality.items()):
        colour = COLOURS[index % len(COLOURS)]
        path = " ".join(f"{x(point[0]):.1f},{y(point[1]):.1f}" for point in line)
        key = BOTTOM - 18 * (len(quality) - index)
        parts.append(f'<polyline fill="none" stroke="{colour}" stroke-width="2" points="{path}"/>'
                     f'<path d="M{RIGHT - 110} {key}h24" stroke="{colour}" stroke-width="3"/>'
                     f'<text x="{RIGHT - 80}" y="{key + 4}">slice {html.escape(str(row))}</text>')
    return "".join(parts) + "</svg>"


def audited(lines: list[dict[str, Any]]) -> str:
    """What `thalweg audit` says of partitions, a column each."""
    rows = [("topic", "th", [line["topic"] for line in lines])] + [
        (title, "td", [value(line) for line in lines])
        for title, value in (
            ("events stored", lambda line: line["events"]),
            ("MB stored", lambda line: f"{line['bytes'] / 1e6:.1f}"),
            ("batches that the journal has as acknowledged", lambda line: line["journal_records"]),
            ("gaps", lambda line: line["gaps"]),
            ("differences", lambda line: line["findings"]),
        )
    ]
    return "".join(
        f"<tr><{tag}>{title}</{tag}>" + "".join(f"<{tag} class=n>{html.escape(str(cell))}</{tag}>" for cell in cells) + "</tr>"
        for title, tag, cells in rows
    )


def write_report(output: Path, facts: dict[str, Any]) -> None:
    """Writes `report.html`, complete in itself, into `output`."""
    good = facts["audit_exit"] == 0
    share = facts["bytes_read"] / facts["bytes_whole"]
    table = {
        "whole run": f"{facts['elapsed_s']} s",
        "events stored: projections, with the end of the scan / slices": f"{facts['stored']['projections']} / {facts['stored']['slices']}",
        "projection data read": f"{facts['bytes_read'] / 1e6:.1f} of {facts['bytes_whole'] / 1e6:.1f} MB ({share:.0%})",
        "frame ready → its rows used, median / longest (outage included)":
            f"{facts['projection_latency_ms_median']} / {facts['projection_latency_ms_max']} ms",
        "slice ready → seen, median / longest": f"{facts['slice_latency_ms_median']} / {facts['slice_latency_ms_max']} ms",
        "projections per second, whole run: as fast as they are computed here": f"{facts['projections'] / facts['elapsed_s']:.1f}",
        "durability of both topics": facts["durability"],
    }
    rows = "".join(f"<tr><td>{html.escape(k)}</td><td class=n>{html.escape(v)}</td></tr>" for k, v in table.items())
    verdict = (
        "Nothing was lost and nothing was doubled: the producers' journals and a scan of every stored batch agree."
        if good
        else "The audit found a difference between the journals and what is stored; see below."
    )
    stages = [str(projections) for projections in facts["stages"]] + ["sample"]
    page = PAGE.format(
        **{key: facts[key] for key in ("projections", "killed_at_projection", "outage_s")},
        verdict=verdict,
        verdict_class="ok" if good else "bad",
        columns="".join(f"<span>{stage}</span>" for stage in stages),
        picture=base64.b64encode((output / "picture.png").read_bytes()).decode(),
        chart=chart(facts["quality"], facts["killed_at_projection"]),
        rows=rows,
        audit=audited([line for line in facts["audit"] if line["type"] == "partition"]),
        where=html.escape(facts["where"]),
    )
    (output / "report.html").write_text(page)
