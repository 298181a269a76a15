"""Half of a rod, and its exchange with the other half at every step.

    python rod.py GROUP_FILE left|right STEPS

Each half is a program and writes a stream that the other one reads. That neither waits for the other
for ever rests on the order: write, read, release.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

import thalweg
from thalweg import steps

CELLS = 50
"""Of each half."""

Array = np.ndarray[Any, np.dtype[np.float64]]


def beginning() -> Array:
    """The whole rod: hot at its left end."""
    return np.where(np.arange(2 * CELLS) < CELLS // 2, 100.0, 20.0)


def conducted(rod: Array, before: float, behind: float) -> Array:
    """The rod a step later, with what is beside its ends."""
    whole = np.concatenate([[before], rod, [behind]])
    return rod + 0.4 * (whole[:-2] - 2 * rod + whole[2:])


def main() -> None:
    group_file, side, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
    is_left = side == "left"
    other = "right" if is_left else "left"
    rod = beginning()[:CELLS] if is_left else beginning()[CELLS:]
    with thalweg.Driver(group_file, connect_timeout=60) as driver:
        # Whoever is first makes both streams.
        for name in ("left", "right"):
            steps.create_stream(driver, name)
        with (
            # One step waits for the other program, no more.
            steps.Writer(driver, side, queue=1, timeout=120) as writer,
            steps.Reader(driver, other, name=side) as reader,
        ):
            for number in range(count):
                with writer.step() as step:
                    step.put("rod", rod)
                came = reader.next(timeout=120)
                if came is None or came.number != number:
                    raise RuntimeError(f"{other} gave {came} in step {number}")
                # The cell beside this half: nothing else of the other one is read.
                neighbour = float(came["rod"][0 if is_left else -1])
                # Now, not when the next step is asked for: the other program has no room before.
                came.release(timeout=120)
                ends = (rod[0], neighbour) if is_left else (neighbour, rod[-1])
                rod = conducted(rod, *ends)


if __name__ == "__main__":
    main()
