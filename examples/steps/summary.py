"""A reader of the waves that sums them up: energy, extremes, particles.

    python summary.py GROUP_FILE DIRECTORY

Extremes are known without reading an array.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
from log import Log
from waves import Array, speeds

import thalweg
from thalweg import steps


def energy(u: Array, v: Array) -> float:
    """That of the waves, as the simulation's own way to go on preserves it, but for rounding."""
    before = u - v
    moving = v * v / speeds((u.shape[0], u.shape[1]), 0, len(u))
    tension = sum(
        ((u - np.roll(u, 1, axis)) * (before - np.roll(before, 1, axis))).sum() for axis in (0, 1)
    )
    return float(moving.sum() + tension) / 2


def main() -> None:
    group_file, directory = sys.argv[1], Path(sys.argv[2])
    with (
        Log(directory / "summary.log") as log,
        thalweg.Driver(group_file, connect_timeout=60) as driver,
        steps.Reader(driver, "waves", name="summary") as reader,
    ):
        for step in reader:
            u = step["u"]
            low, high = float(u.min), float(u.max)
            fields = step.get_many(["u", "v"])
            log.write(
                step.number,
                energy=energy(fields["u"], fields["v"]),
                low=low,
                high=high,
                particles=len(step["particles"]),
                nbytes=fields["u"].nbytes + fields["v"].nbytes,
            )


if __name__ == "__main__":
    main()
