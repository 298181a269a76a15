"""The simulation: ranks are processes, and each writes its part of every step.

    python simulation.py GROUP_FILE RANKS STEPS ROWS COLUMNS PARTICLES

Killed and started again it goes on behind the last step that is committed, and reads from that step
where it was: the stream is its checkpoint. Ranks reach their neighbours by pipes.
"""

from __future__ import annotations

import multiprocessing
import sys

import numpy as np
from ranks import Ring, run_ranks
from waves import Band, band_of, beginning

import thalweg
from thalweg import steps

STREAM = "waves"
QUEUE = 4
"""This many steps wait for the slowest reader: who is ahead of it waits."""


def last_written(driver: thalweg.Driver, run: int, number: int, rank: int, ranks: int) -> Band:
    """Where the simulation was at the end of a step: only this rank's rows of it are read."""
    step = steps.open_run(driver, STREAM, run).step(number)
    shape = step["u"].shape
    first, last = (n * shape[0] // ranks for n in (rank, rank + 1))
    mine = step.get_many({"u": np.s_[first:last], "v": np.s_[first:last], "particles": ...})
    row = mine["particles"]["y"].astype(int)
    particles = mine["particles"][(row >= first) & (row < last)]
    return Band(shape, first, mine["u"], mine["v"], particles)


def simulate(rank: int, ring: Ring, arguments: list[str]) -> None:
    group_file = arguments[0]
    ranks, count, rows, columns, particles = map(int, arguments[1:])
    with (
        thalweg.Driver(group_file, connect_timeout=60) as driver,
        steps.Writer(driver, STREAM, rank=rank, ranks=ranks, writer="simulation", queue=QUEUE) as writer,
    ):
        begin = writer.next_step
        if begin > 0:
            band = last_written(driver, writer.run, begin - 1, rank, ranks)
            print(f"rank {rank} goes on at step {begin}", flush=True)
        else:
            band = band_of(beginning((rows, columns), particles), rank, ranks)
        for number in range(begin, count):
            if number > 0:
                band.advance(ring)
            with writer.step(attrs={"cells_per_step": 0.6}) as step:
                for name, field in (("u", band.u), ("v", band.v)):
                    step.put(name, field, shape=(rows, columns), start=(band.first, 0))
                step.put("particles", band.particles, join=0)


def main() -> None:
    ranks = int(sys.argv[2])
    pairs = [multiprocessing.Pipe() for _ in range(ranks)]
    rings = [Ring(pairs[rank - 1][1], pairs[rank][0]) for rank in range(ranks)]
    run_ranks(ranks, lambda rank: simulate(rank, rings[rank], sys.argv[1:]))


if __name__ == "__main__":
    main()
