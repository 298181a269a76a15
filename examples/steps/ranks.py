"""Ranks of a program as processes, in place of MPI."""

from __future__ import annotations

import multiprocessing
import sys
from collections.abc import Callable
from multiprocessing.connection import Connection, wait

from waves import Array

NEIGHBOUR_S_MAX = 120


class Ring:
    """The two ranks beside this one."""

    def __init__(self, above: Connection, below: Connection) -> None:
        self.above, self.below = above, below

    def exchange(self, to_above: Array, to_below: Array) -> tuple[Array, Array]:
        self.above.send(to_above)
        self.below.send(to_below)
        came = []
        for name, pipe in (("above", self.above), ("below", self.below)):
            if not pipe.poll(NEIGHBOUR_S_MAX):
                raise TimeoutError(f"the rank {name} is silent for {NEIGHBOUR_S_MAX} s")
            came.append(pipe.recv())
        return came[0], came[1]


def run_ranks(count: int, rank: Callable[[int], None]) -> None:
    """Runs `rank(0)`, `rank(1)`, … beside each other, and ends the program with them."""
    # Forked before anything of Thalweg begins, which does not survive a fork.
    fork = multiprocessing.get_context("fork")
    processes = [fork.Process(target=rank, args=(number,)) for number in range(count)]
    for process in processes:
        process.start()
    while left := [process for process in processes if process.exitcode is None]:
        wait([process.sentinel for process in left])
        if any(process.exitcode for process in processes):
            # The others would wait for it.
            for process in left:
                process.terminate()
    sys.exit(any(process.exitcode for process in processes))
