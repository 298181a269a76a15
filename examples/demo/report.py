"""The one-page report of a run."""

from __future__ import annotations

import base64
import html
import json
from pathlib import Path
from typing import Any

PAGE = """<!doctype html>
<html lang="en"><meta charset="utf-8"><title>Thalweg: from instrument to picture</title>
<style>
 body {{ font: 16px/1.5 system-ui, sans-serif; max-width: 62rem; margin: 2rem auto; padding: 0 1rem; color: #223 }}
 table {{ border-collapse: collapse; margin: 1rem 0 }} td, th {{ padding: .25rem .8rem; text-align: left; border-bottom: 1px solid #dde }}
 td.n {{ text-align: right; font-variant-numeric: tabular-nums }} img {{ width: 100%; image-rendering: auto; background: #000 }}
 .ok {{ color: #176b34; font-weight: 600 }} .bad {{ color: #a11; font-weight: 600 }} pre {{ background: #f4f4f8; padding: 1rem; overflow: auto }}
</style>
<h1>From instrument to picture</h1>
<p>An acquisition process streamed {projections} projections of a real scan; a reconstruction process pulled only the
rows that it needed and published slices; a viewer drew them. The server was killed with SIGKILL after
{killed_at_projection} projections were stored, and started again {outage_s} s later ready to serve.</p>
<p class="{verdict_class}">{verdict}</p>
<img src="data:image/png;base64,{picture}" alt="Reconstructed slices from first to last stage, and the sample">
<p>Each line is one slice: from the first published stage to the last, and the sample itself at the right.</p>
{chart}
<table>{rows}</table>
<h2>What the audit compared</h2><pre>{audit}</pre>
</html>
"""


def chart(quality: dict[str, list[list[float]]]) -> str:
    """Quality against projections used, as an SVG line per slice."""
    points = [point for line in quality.values() for point in line]
    right = max(point[0] for point in points)
    low, high = min(point[1] for point in points), max(point[1] for point in points)
    spread = max(high - low, 1e-9)

    def place(point: list[float]) -> str:
        return f"{60 + 520 * point[0] / right:.1f},{180 - 150 * (point[1] - low) / spread:.1f}"

    lines = "".join(
        f'<polyline fill="none" stroke="hsl({60 * index} 60% 40%)" stroke-width="2" points="{" ".join(map(place, line))}"/>'
        for index, line in enumerate(quality.values())
    )
    return (
        '<svg viewBox="0 0 620 215" width="620" role="img" aria-label="quality over projections">'
        '<path d="M60 20V180H590" fill="none" stroke="#889"/>' + lines
        + f'<text x="8" y="34" font-size="12">{high:.1f} dB</text><text x="8" y="184" font-size="12">{low:.1f} dB</text>'
        f'<text x="300" y="205" font-size="12">projections used, up to {right}: peak signal-to-noise ratio of each slice</text></svg>'
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
        "projections per second, whole run": f"{facts['projections'] / facts['elapsed_s']:.1f}",
    }
    rows = "".join(f"<tr><td>{html.escape(k)}</td><td class=n>{html.escape(v)}</td></tr>" for k, v in table.items())
    verdict = (
        "Nothing was lost and nothing was doubled: the producers' journals and a scan of every stored batch agree."
        if good
        else "The audit found a difference between the journals and what is stored; see below."
    )
    page = PAGE.format(
        **{key: facts[key] for key in ("projections", "killed_at_projection", "outage_s")},
        verdict=verdict,
        verdict_class="ok" if good else "bad",
        picture=base64.b64encode((output / "picture.png").read_bytes()).decode(),
        chart=chart(facts["quality"]),
        rows=rows,
        audit=html.escape("\n".join(json.dumps(line) for line in facts["audit"])),
    )
    (output / "report.html").write_text(page)
