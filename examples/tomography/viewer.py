"""Viewer: a page with the newest picture of every rank, drawn again as they come.

Writes `live.html` and `picture.png`; a browser that has the page open follows
by itself. Acknowledges what it has drawn.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

import numpy as np
from PIL import Image

import thalweg
from component import Meter, connect, last_event, options_of, ready, report

PAGE = """<!doctype html><html lang="en"><meta charset="utf-8"><title>Tomography, live</title>{refresh}
<style>body {{ font: 16px system-ui, sans-serif; background: #111; color: #ccc; margin: 2rem }} img {{ max-width: 100% }}</style>
<p>{state}: {projections} projections, step {step}</p><img src="picture.png?{step}" alt="the slices as they are now">
"""
WIDTH = 512
"""Pixels of one slice in the picture, at most."""


def draw(newest: dict[int, tuple[dict[str, int], np.ndarray]], output: Path, over: bool) -> None:
    """The slices side by side; each file is replaced at once, never half written."""
    slices = [picture for _, (_, pictures) in sorted(newest.items()) for picture in pictures][:4]
    Image.fromarray(np.hstack(slices)).save(output / "picture.new.png")
    os.replace(output / "picture.new.png", output / "picture.png")
    last = max((metadata for metadata, _ in newest.values()), key=lambda m: m["step"])
    refresh = "" if over else '<meta http-equiv="refresh" content="1">'
    page = PAGE.format(
        refresh=refresh, state="finished" if over else "live",
        projections=last["projections"], step=last["step"],
    )
    (output / "live.new.html").write_text(page)
    os.replace(output / "live.new.html", output / "live.html")


def reduced(pictures: np.ndarray) -> np.ndarray:
    """Small enough to be shown."""
    stride = -(-pictures.shape[-1] // WIDTH)
    return pictures[:, ::stride, ::stride].copy()


def main() -> None:
    parser = options_of(__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--every", type=float, default=0.5, help="seconds between drawings, at least")
    options = parser.parse_args()
    options.output.mkdir(parents=True, exist_ok=True)
    meter = Meter()
    newest: dict[int, tuple[dict[str, int], np.ndarray]] = {}
    with connect(options, "viewer") as driver:
        topic = driver.open_topic("pictures")
        open_ranks = set(range(len(topic.partitions)))
        with topic.consumer("viewer") as consumer:
            drawn_to = {cursor.partition: cursor.offset for cursor in driver.cursors(topic, "viewer")}
            for rank in sorted(open_ranks):
                behind = resume(topic, rank, newest)
                if behind is not None and behind == drawn_to.get(rank):
                    open_ranks.discard(rank)
            ready(options)
            drawn, seen = 0.0, []
            while open_ranks:
                event = meter.pull(consumer)
                rank = event.id.partition
                if "end" in event.metadata:
                    open_ranks.discard(rank)
                else:
                    pictures = event.numpy(np.uint8, event.metadata["shape"])
                    newest[rank] = event.metadata, reduced(pictures)
                seen.append(event.id)
                if newest and time.monotonic() - drawn >= options.every:
                    draw(newest, options.output, over=False)
                    drawn = time.monotonic()
                    for one in seen:
                        consumer.acknowledge(one)
                    seen.clear()
            draw(newest, options.output, over=True)
            for one in seen:
                consumer.acknowledge(one)
            meter.wait(consumer.close)
    report(options, consume=meter)


def resume(
    topic: thalweg.Topic, rank: int, newest: dict[int, tuple[dict[str, int], np.ndarray]]
) -> int | None:
    """Takes the newest picture of a rank, so that a restart shows no hole.
    Returns the offset behind the rank's end, if that is there.
    """
    last = last_event(topic, rank)
    behind = None
    if last is not None and "end" in last.metadata:
        behind = last.id.offset + 1
        last = topic.fetch(rank, behind - 2, timeout=60)[0] if behind > 1 else None
    if last is not None:
        pictures = np.frombuffer(topic.read_data(last), np.uint8).reshape(last.metadata["shape"])
        newest[rank] = last.metadata, reduced(pictures)
    return behind


if __name__ == "__main__":
    main()
