"""The one-page report of a run of the two sites, and its pictures."""

from __future__ import annotations

import base64
import html
import io
import sys
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

sys.path.insert(0, str(Path(__file__).parents[1]))
from chart import STYLE, chart  # noqa: E402

PAGE = """<!doctype html>
<html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>Thalweg: two sites</title>
<style>
{style} .film {{ image-rendering: pixelated; max-width: 24rem }}
</style>
<h1>Two sites, and a line that fails</h1>
<p>An instrument at site A wrote {frames} frames of {kb:.0f} KB to the server beside it, fifty a second. A mirror copied them to the server of
site B, where a viewer saw them. The line between the sites was cut {cuts}, and the server of A, the server of B and the link were killed with SIGKILL
and started again.</p>
<p class="ok">Every frame is at B, once, in order, the same bytes under the same offset; the viewer saw each one once.</p>
<img src="data:image/png;base64,{picture}" alt="Six frames, as they came to site B">
<p>Frames as they came to site B.</p>
<img class="film" src="data:image/gif;base64,{film}" alt="The same, moving">
<h2>What waited at site A</h2>
{lag}
<p>Shaded: the line was cut. What is written meanwhile waits on the disk of the server of A.</p>
<h2>Rates</h2>
{rates}
<p>The instrument goes on while the line is cut. Afterwards the link takes what the line gives, until it has caught up.</p>
<h2>How old a frame was when the viewer saw it</h2>
{ages}
<h2>A program of A that uses the server of B through a tunnel</h2>
{motor}
<p>Each position is acknowledged by site B before the next one is sent. A cut makes it wait, and its connection lives through it.</p>
<h2>The run</h2>
<table>{rows}</table>
<p class="small">{where}</p>
</html>
"""

def picture(frames: Any) -> Image.Image:
    """Six frames from the first to the last, as the eye sees them."""
    chosen = [shade(frames[number * (len(frames) - 1) // 5]) for number in range(6)]
    edge = [np.pad(one, 2, constant_values=255) for one in chosen]
    return Image.fromarray(np.hstack(edge))


def shade(frame: Any) -> Any:
    """Counts as grey, by their logarithm; the first line is the number of the frame."""
    scaled = np.log1p(frame[1:].astype(float))
    low, high = np.log1p(150.0), np.log1p(12_000.0)
    return (255 * np.clip((scaled - low) / (high - low), 0, 1)).astype(np.uint8)


def film(frames: Any) -> bytes:
    """Eighty frames at most, as an animated GIF."""
    chosen = [Image.fromarray(shade(frame)) for frame in frames[:: -(-len(frames) // 80)]]
    file = io.BytesIO()
    chosen[0].save(file, "GIF", save_all=True, append_images=chosen[1:], duration=80, loop=0)
    return file.getvalue()


def growth(points: list[tuple[float, float]], every: float) -> list[tuple[float, float]]:
    """How much a count grows a second, over stretches of so many seconds."""
    found, last = [], points[0]
    for at, count in points[1:]:
        if at - last[0] >= every:
            found.append(((at + last[0]) / 2, max(0.0, (count - last[1]) / (at - last[0]))))
            last = (at, count)
    return found


def copied(links: list[dict[str, Any]]) -> list[tuple[float, float]]:
    """Bytes that were copied, over all runs of the link, each of which counts from 0."""
    points, before, last = [], 0, 0
    for line in links:
        if line["bytes"] < last:
            before += last
        last = line["bytes"]
        points.append((line["time"], float(before + last)))
    return points


def waiting(links: list[dict[str, Any]]) -> list[tuple[float, int]]:
    """Events that were not copied yet. Of a link that has only just begun that is not known: such a line has none."""
    return [(line["time"], line["lag_events"]) for line in links if line["lag_events"] is not None]


def write_report(output: Path, facts: dict[str, Any], frames_file: Path) -> None:
    """Writes `picture.png` and `report.html`, complete in itself, into `output`."""
    frames = np.load(frames_file)
    picture(frames).save(output / "picture.png", optimize=True)
    began = facts["began"]

    def since(points: list[tuple[float, float]]) -> list[tuple[float, float]]:
        return [(at - began, value) for at, value in points if at >= began]

    cuts = [one for one in facts["happened"] if one["what"] == "cut"]
    spans = [(one["time"] - began, one["time"] - began + one["seconds"]) for one in cuts]
    kills = {f"{one['what']} killed": one["time"] - began for one in facts["happened"] if one["what"] != "cut"}
    links, motor, seen = facts["link"], facts["motor"], facts["viewer"]
    written = [(line["time"], line["frames"] * facts["frame_bytes"] / 1e6) for line in facts["instrument"]]
    took = sorted(line["took"] for line in motor)
    waited = max(line["longest_s"] for line in facts["instrument"])
    ages = sorted(line["came"] - line["taken"] for line in seen)
    table = {
        "frames; bytes of data": f"{facts['frames']}; {facts['frames'] * facts['frame_bytes'] / 1e6:.0f} MB",
        "the instrument was at work for; longest wait of one frame": f"{facts['written_s']} s; {waited * 1e3:.0f} ms",
        "after its last frame, all were seen at B within": f"{facts['behind_s']} s",
        "age of a frame when it was seen at B, median / greatest": f"{ages[len(ages) // 2] * 1e3:.0f} ms / {ages[-1]:.1f} s",
        "most that waited at A": f"{max(count for _, count in waiting(links))} frames",
        "positions through the tunnel; acknowledged after, median / longest": f"{len(motor)}; {took[len(took) // 2] * 1e3:.0f} ms / {took[-1]:.1f} s",
        "offsets, numbers and SHA-256 of all frames, hashed": facts["sha256"],
    }
    rows = "".join(f"<tr><td>{html.escape(k)}</td><td class=n>{html.escape(v)}</td></tr>" for k, v in table.items())
    rates = {"written at A": since(growth(written, 1.0)), "copied to B": since(growth([(at, n / 1e6) for at, n in copied(links)], 1.0))}
    page = PAGE.format(
        style=STYLE,
        frames=facts["frames"],
        kb=facts["frame_bytes"] / 1e3,
        cuts=" and ".join(f"for {one['seconds']:g} s" for one in cuts),
        picture=base64.b64encode((output / "picture.png").read_bytes()).decode(),
        film=base64.b64encode(film(frames)).decode(),
        lag=chart({"lag": since(waiting(links))}, "seconds", "frames that wait", kills, spans=spans),
        rates=chart(rates, "seconds", "MB/s", kills, spans=spans),
        ages=chart({"age": since([(line["came"], line["came"] - line["taken"]) for line in seen])}, "seconds", "seconds", kills, spans=spans),
        motor=chart(
            {"acknowledged after": since([(line["sent"] + line["took"], np.log10(line["took"])) for line in motor])},
            "seconds",
            "seconds until the acknowledgement",
            {},
            powers=True,
            spans=spans,
        ),
        rows=rows,
        where=html.escape(facts["where"]),
    )
    (output / "report.html").write_text(page)
