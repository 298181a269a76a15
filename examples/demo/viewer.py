"""Viewer: consumes the slices and draws how the picture gets better.

Writes `picture.png` (one row of stages per slice) and `viewer.json` (what the
report quotes) into the output directory.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

import numpy as np
from PIL import Image
from volume import volume

import thalweg

STAGES = 5
"""How many stages of each slice the picture shows."""


def psnr_db(picture: np.ndarray, truth: np.ndarray) -> float:
    """Peak signal-to-noise ratio against the sample itself, in decibels."""
    error = float(np.mean((np.clip(picture, 0, 1) - truth) ** 2))
    return float(10 * np.log10(1.0 / max(error, 1e-12)))


def picks(count: int) -> list[int]:
    """Which of so many stages the picture shows."""
    return [int(pick) for pick in np.linspace(0, count - 1, STAGES).round()]


def draw(stages: dict[int, list[np.ndarray]], truth: np.ndarray, path: Path) -> None:
    """One line per slice: some stages from first to last, then the sample."""
    lines = []
    for row, pictures in sorted(stages.items()):
        line = [pictures[pick] for pick in picks(len(pictures))] + [truth[row]]
        lines.append(np.hstack([np.clip(picture, 0, 1) for picture in line]))
    Image.fromarray((np.vstack(lines) * 255).astype(np.uint8)).save(path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--group-file", required=True)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--slices", type=int, required=True, help="how many slices to expect")
    options = parser.parse_args()

    truth = volume()
    stages: dict[int, list[np.ndarray]] = {}
    quality: dict[int, list[tuple[int, float]]] = {}
    latencies: list[float] = []
    last: dict[str, object] = {}
    finished: set[int] = set()
    with thalweg.Driver(options.group_file, connect_timeout=60) as driver:
        with driver.open_topic("slices").consumer("viewer") as consumer:
            while len(finished) < options.slices:
                event = consumer.pull()
                metadata = event.metadata
                row = metadata["slice"]
                picture = event.numpy(metadata["dtype"], metadata["shape"]).copy()
                latencies.append(1e3 * (time.time() - metadata["ready"]))
                stages.setdefault(row, []).append(picture)
                quality.setdefault(row, []).append(
                    (metadata["projections"], round(psnr_db(picture, truth[row]), 2))
                )
                if metadata["final"]:
                    finished.add(row)
                    last = metadata
                event.acknowledge()
    draw(stages, truth, options.output / "picture.png")
    first = quality[min(quality)]
    summary = {
        "quality": quality,
        "stages": [first[pick][0] for pick in picks(len(first))],
        "slices_received": sum(map(len, stages.values())),
        "slice_latency_ms_median": round(float(np.median(latencies)), 2),
        "slice_latency_ms_max": round(float(np.max(latencies)), 2),
        "projections": last["projections"],
        "bytes_read": last["bytes_read"],
        "bytes_whole": last["bytes_whole"],
        "projection_latency_ms_median": round(float(last["latency_ms_median"]), 2),
        "projection_latency_ms_max": round(float(last["latency_ms_max"]), 2),
    }
    (options.output / "viewer.json").write_text(json.dumps(summary, indent=1))
    print(f"viewer: {summary['slices_received']} slices seen", flush=True)


if __name__ == "__main__":
    main()
