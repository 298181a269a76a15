"""Waves in two dimensions that meet a lens, and particles that they push: one rank's part of it.

The plane is a torus of `rows` times `columns` cells, of which each rank has a band of rows. What a
step does with an element never depends on how many ranks there are, so neither does its result.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]

COURANT2 = 0.36
"""(c Δt / Δx)² outside of the lens."""
IN_LENS = COURANT2 / 2.25
PUSH = 0.004
"""How much of the slope of the waves a particle's velocity gets in a step."""
PARTICLE = np.dtype([("id", "<i8"), ("x", "<f8"), ("y", "<f8"), ("vx", "<f8"), ("vy", "<f8")])


class Neighbours(Protocol):
    """The two ranks beside this one, on a ring."""

    def exchange(self, to_above: Array, to_below: Array) -> tuple[Array, Array]:
        """Gives each of them an array: what they gave, the one above first."""


@dataclass
class Band:
    """The rows from `first` on of a rank: heights `u` of the waves, their change `v` in a step, and
    the particles over these rows."""

    shape: tuple[int, int]
    first: int
    u: Array
    v: Array
    particles: Array

    def advance(self, neighbours: Neighbours) -> None:
        """One step."""
        rows, columns = self.shape
        count = len(self.u)
        padded = np.empty((count + 2, columns))
        padded[1:-1] = self.u
        padded[0], padded[-1] = neighbours.exchange(self.u[0].copy(), self.u[-1].copy())
        left, right = np.roll(self.u, 1, axis=1), np.roll(self.u, -1, axis=1)
        above, below = padded[:-2], padded[2:]

        p = self.particles
        at = (p["y"].astype(int) - self.first, p["x"].astype(int))
        p["vx"] -= PUSH * (right[at] - left[at])
        p["vy"] -= PUSH * (below[at] - above[at])
        p["x"] = wrapped(p["x"] + p["vx"], columns)
        p["y"] = wrapped(p["y"] + p["vy"], rows)

        self.v += speeds(self.shape, self.first, count) * (above + below + left + right - 4 * self.u)
        self.u += self.v
        self._hand_over(neighbours)

    def _hand_over(self, neighbours: Neighbours) -> None:
        """Particles that have left the band go to a neighbour: none moves by more than a row."""
        rows = self.shape[0]
        row = self.particles["y"].astype(int)
        behind = (row - self.first) % rows
        stays = behind < len(self.u)
        # The ring has two ways to a rank: the shorter one.
        goes_up = ~stays & (behind >= len(self.u) + (rows - len(self.u)) // 2)
        goes_down = ~stays & ~goes_up
        came = neighbours.exchange(self.particles[goes_up], self.particles[goes_down])
        self.particles = np.concatenate([self.particles[stays], *came])


def wrapped(places: Array, length: int) -> Array:
    """Places on a ring: never `length` itself, which rounding could make of a tiny negative one."""
    places = places % length
    places[places >= length] = 0.0
    return places


def speeds(shape: tuple[int, int], first: int, count: int) -> Array:
    """(c Δt / Δx)² of some rows."""
    rows, columns = shape
    y, x = np.mgrid[first : first + count, 0:columns]
    in_lens = (y - rows / 2) ** 2 + (x - columns / 2) ** 2 < (rows / 4) ** 2
    return np.where(in_lens, IN_LENS, COURANT2)


def beginning(shape: tuple[int, int], particle_count: int) -> Band:
    """The whole plane before the first step: a train of waves that goes to the right."""
    rows, columns = shape

    def train(x: Array) -> Array:
        behind = x - columns / 5
        return np.cos(behind * (2 * np.pi / 12)) * np.exp(-((behind / (columns / 12)) ** 2))

    x = np.arange(columns, dtype=float)
    u = np.tile(train(x), (rows, 1))
    v = np.tile(train(x - COURANT2**0.5) - train(x), (rows, 1))
    random = np.random.default_rng(7)
    particles = np.zeros(particle_count, PARTICLE)
    particles["id"] = np.arange(particle_count)
    particles["x"] = random.uniform(0, columns, particle_count)
    particles["y"] = random.uniform(0, rows, particle_count)
    return Band(shape, 0, u, v, particles)


def band_of(whole: Band, rank: int, ranks: int) -> Band:
    """A rank's part of the plane."""
    first, last = (number * whole.shape[0] // ranks for number in (rank, rank + 1))
    row = whole.particles["y"].astype(int)
    mine = whole.particles[(row >= first) & (row < last)]
    return Band(whole.shape, first, whole.u[first:last].copy(), whole.v[first:last].copy(), mine)


class Alone:
    """The neighbours of the only rank: itself."""

    def exchange(self, to_above: Array, to_below: Array) -> tuple[Array, Array]:
        return to_below, to_above
