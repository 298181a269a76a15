"""A reader of the waves that paints them, by several ranks, each of which has some columns.

    python painter.py GROUP_FILE DIRECTORY NAME RANKS START

START is `cursor`, or the number of a run that is painted once more. The ranks of the simulation have
rows, these have columns, of any other number: what each needs of a step is read, and no more.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
from log import Log
from ranks import run_ranks
from waves import Array

import thalweg
from thalweg import steps

LOW, MIDDLE, HIGH = (np.array(colour, float) for colour in ((20, 60, 140), (246, 246, 240), (170, 30, 40)))
HEIGHT = 0.9
"""Waves of this height have the full colour."""


def painted(u: Array, particles: Array, first: int) -> Array:
    """Heights as colours, with a dot in each cell that has particles: `(rows, columns, 3)`, bytes."""
    share = np.clip(u / HEIGHT, -1, 1)[:, :, np.newaxis]
    picture = MIDDLE + np.where(share < 0, -share * (LOW - MIDDLE), share * (HIGH - MIDDLE))
    x = particles["x"].astype(int) - first
    here = (x >= 0) & (x < u.shape[1])
    picture[particles["y"].astype(int)[here], x[here]] *= 0.35
    return picture.astype(np.uint8)


def paint(rank: int) -> None:
    group_file, directory, name = sys.argv[1], Path(sys.argv[2]), sys.argv[3]
    ranks, start = int(sys.argv[4]), sys.argv[5]
    begin = "cursor" if start == "cursor" else ("run", int(start))
    with (
        Log(directory / f"{name}-{rank}.log") as log,
        thalweg.Driver(group_file, connect_timeout=60) as driver,
        steps.Reader(driver, "waves", name=name, rank=rank, ranks=ranks, start=begin) as reader,
    ):
        for step in reader:
            columns = step["u"].shape[1]
            first, last = (number * columns // ranks for number in (rank, rank + 1))
            mine = step.get_many({"u": np.s_[:, first:last], "particles": ...})
            tile = painted(mine["u"], mine["particles"], first)
            # Written whole or not at all. A step that is given again is painted again, alike.
            unfinished = directory / f"{name}-{rank}.unfinished"
            with unfinished.open("wb") as file:
                np.save(file, tile)
            unfinished.rename(directory / f"{name}-{step.number:05}-{rank}.npy")
            log.write(step.number, nbytes=mine["u"].nbytes + mine["particles"].nbytes)


if __name__ == "__main__":
    run_ranks(int(sys.argv[4]), paint)
