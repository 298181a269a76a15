"""The one-page report of a run of the steps demo, and its picture."""

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
<title>Thalweg: steps of a simulation</title>
<style>
{style} .film {{ image-rendering: pixelated; max-width: 42rem }}
</style>
<h1>Steps of a simulation</h1>
<p>{ranks} ranks of a simulation wrote {steps} steps of waves and particles, {mb:.0f} MB. Three programs read them meanwhile: {painters} ranks
painted, by columns where the simulation has rows; one summed up; one learned. At step {painter_step} the painters were killed with SIGKILL
and started again; at step {simulation_step} all ranks of the simulation were, and went on behind the last committed step, from
which they read where they were. Afterwards {again} ranks painted the stored run once more.</p>
<p class="ok">Every reader had every step. All {steps} pictures are the same, bit for bit, and the last step is what one rank computes
without a stream and without a kill.</p>
<img src="data:image/png;base64,{picture}" alt="Waves that pass a lens, at six steps">
<p>Heights of the waves, blue below and red above; particles are dark. In the circle waves are slower: it is a lens.</p>
<img class="film" src="data:image/gif;base64,{film}" alt="The same, moving">
<h2>Who had which step when</h2>
{timeline}
<p>While the painters were gone, the others had four more steps, the limit of the queue (<code>queue=4</code>), and then waited for them.</p>
<h2>What the training learned while the simulation ran</h2>
{learning}
<h2>Heights of the waves, as the summary has them</h2>
{heights}
<p>The lens makes them higher. Their energy stays {energy:.3f}, within {drift:.0e} of it, across both kills.</p>
<h2>The run</h2>
<table>{rows}</table>
<p class="small">{where}</p>
</html>
"""

def picture(frames: list[Any]) -> Image.Image:
    """Six steps from the first to the last, three beside one another."""
    chosen = [frames[number * (len(frames) - 1) // 5] for number in range(6)]
    edge = np.pad(np.stack(chosen), ((0, 0), (2, 2), (2, 2), (0, 0)), constant_values=255)
    sheet = np.concatenate([np.concatenate(list(edge[row : row + 3]), axis=1) for row in (0, 3)])
    image = Image.fromarray(sheet)
    return image.resize((image.width * 2, image.height * 2), Image.Resampling.NEAREST)


def film(frames: list[Any]) -> bytes:
    """Eighty steps at most, as an animated GIF."""
    chosen = [Image.fromarray(frame) for frame in frames[:: -(-len(frames) // 80)]]
    chosen = [image.quantize(32, dither=Image.Dither.NONE) for image in chosen]
    file = io.BytesIO()
    chosen[0].save(file, "GIF", save_all=True, append_images=chosen[1:], duration=80, loop=0)
    return file.getvalue()


def write_report(output: Path, facts: dict[str, Any], frames: list[Any]) -> None:
    """Writes `picture.png` and `report.html`, complete in itself, into `output`."""
    picture(frames).save(output / "picture.png", optimize=True)
    logs, began = facts["logs"], facts["began"]
    who = {"committed": [(at - began, number) for number, at in facts["committed"]]}
    for name, log in logs.items():
        title = name.replace("live-", "painter ")
        who[title] = [(line["time"] - began, line["step"]) for line in log]
    kills = {f"{name} killed": one["time"] - began for name, one in facts["killed"].items()}
    training = logs["training"]
    learning = {
        "guess: nothing changes": [(line["step"], np.log10(line["change"])) for line in training],
        "training": [(line["step"], np.log10(line["loss"])) for line in training],
    }
    summary = logs["summary"]
    heights = {
        title: [(line["step"], line[name]) for line in summary]
        for title, name in (("greatest", "high"), ("least", "low"))
    }
    energies = [line["energy"] for line in summary]
    read = {name: sum(line["nbytes"] for line in log) for name, log in logs.items()}
    table = {
        "steps; ranks that wrote / painted / painted once more":
            f"{facts['steps']}; {facts['ranks']} / {facts['painters']} / {facts['again']}",
        "cells; particles": f"{facts['shape'][0]} × {facts['shape'][1]}; {facts['particles']}",
        "written": f"{facts['bytes'] / 1e6:.1f} MB",
        **{f"read by {name.replace('live-', 'painter ')}": f"{count / 1e6:.1f} MB" for name, count in read.items()},
        "whole run, both kills included / painted once more": f"{facts['elapsed_s']} / {facts['repainted_s']} s",
        "all pictures, SHA-256, live and once more": facts["pictures_sha256"],
    }
    rows = "".join(f"<tr><td>{html.escape(k)}</td><td class=n>{html.escape(v)}</td></tr>" for k, v in table.items())
    page = PAGE.format(
        style=STYLE,
        **{key: facts[key] for key in ("steps", "ranks", "painters", "again")},
        mb=facts["bytes"] / 1e6,
        painter_step=facts["killed"]["painter"]["step"],
        simulation_step=facts["killed"]["simulation"]["step"],
        picture=base64.b64encode((output / "picture.png").read_bytes()).decode(),
        film=base64.b64encode(film(frames)).decode(),
        timeline=chart(who, "seconds", "step", kills),
        learning=chart(learning, "step", "mean squared error", {}, powers=True),
        heights=chart(heights, "step", "height", {}),
        energy=energies[0],
        drift=(max(energies) - min(energies)) / energies[0],
        rows=rows,
        where=html.escape(facts["where"]),
    )
    (output / "report.html").write_text(page)
