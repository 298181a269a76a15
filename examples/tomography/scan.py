"""The scan: what a detector sees of a sample on a rotation stage.

A scan is an HDF5 file in the exchange layout of tomography: `exchange/data`
(projections, rows, columns), `exchange/data_white` and `exchange/data_dark`
(frames without sample, frames without beam) and `exchange/theta` in degrees.
`write_phantom` makes one of a sample whose projections are known exactly; the
sample itself is stored beside them, as `phantom`, to compare with.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import h5py
import numpy as np

# Ellipses of the phantom: density, half axes, centre and turn in degrees, in
# units of half the detector's width.
ELLIPSES = (
    (1.00, 0.70, 0.86, 0.00, 0.00, 0),
    (-0.72, 0.64, 0.79, 0.00, -0.02, 0),
    (0.35, 0.12, 0.33, 0.25, 0.05, -18),
    (-0.18, 0.17, 0.40, -0.24, 0.02, 22),
    (0.45, 0.21, 0.16, 0.02, 0.38, 0),
    (0.60, 0.06, 0.06, -0.05, -0.30, 0),
    (0.50, 0.05, 0.11, 0.12, -0.55, 75),
    (0.80, 0.03, 0.03, -0.22, -0.56, 0),
)


@dataclass
class Scan:
    """A scan in memory: float32 frames of shape (rows, columns)."""

    projections: np.ndarray
    white: np.ndarray
    dark: np.ndarray
    angles: np.ndarray
    """Degrees, one for each projection."""
    center: float
    """The column that the rotation axis is seen in."""
    phantom: np.ndarray | None
    """What is there in truth, (rows, columns, columns), if that is known."""

    @property
    def rows(self) -> int:
        return int(self.projections.shape[1])

    @property
    def columns(self) -> int:
        return int(self.projections.shape[2])

    def events(self) -> Iterator[tuple[dict[str, Any], np.ndarray | None]]:
        """All events of the acquisition, in order: metadata and frame.

        First what describes the scan, then the fields, then the projections,
        interlaced, so that any stretch of them covers the half turn; at last the end.
        """
        yield {"rows": self.rows, "columns": self.columns, "center": self.center}, None
        for field, frames in (("white", self.white), ("dark", self.dark)):
            for frame in frames:
                yield {"field": field}, frame
        for number in interlaced(len(self.projections)):
            angle = round(float(self.angles[number]), 4)
            yield {"projection": int(number), "angle": angle}, self.projections[number]
        yield {"end": True}, None


def interlaced(count: int, each: int = 16) -> np.ndarray:
    """0 to count - 1, in turns of about `each` that are spread over all of it."""
    turns = -(-count // each)
    return np.concatenate([np.arange(first, count, turns) for first in range(turns)])


def read_scan(path: Path, projections: int | None = None, center: float | None = None) -> Scan:
    """Reads a scan, or the first `projections` of it."""
    with h5py.File(path, "r") as file:
        exchange = file["exchange"]
        data = np.asarray(exchange["data"][:projections], np.float32)
        phantom = np.asarray(file["phantom"]) if "phantom" in file else None
        return Scan(
            projections=data,
            white=np.asarray(exchange["data_white"], np.float32),
            dark=np.asarray(exchange["data_dark"], np.float32),
            angles=np.asarray(exchange["theta"])[: len(data)],
            center=(data.shape[2] - 1) / 2 if center is None else center,
            phantom=phantom,
        )


def _ellipses(row: int, rows: int) -> np.ndarray:
    """The ellipses as that row cuts them: each row's are a little different."""
    ellipses = np.array(ELLIPSES)
    share = row / max(rows, 2)
    ellipses[2:, 3] += 0.05 * share
    ellipses[2:, 5] += 30 * share
    return ellipses


def _shadow(row: int, rows: int, columns: int, angles: np.ndarray) -> np.ndarray:
    """Line integrals through one row at `angles`, exactly: (angles, columns)."""
    turn = np.deg2rad(angles)[:, None]
    place = (np.arange(columns) - (columns - 1) / 2) / (columns / 2)
    shadow = np.zeros((len(angles), columns))
    for density, a, b, x, y, tilt in _ellipses(row, rows):
        own = turn - np.deg2rad(tilt)
        width = (a * np.cos(own)) ** 2 + (b * np.sin(own)) ** 2
        offset = place[None, :] - (x * np.cos(turn) + y * np.sin(turn))
        inside = np.maximum(width - offset**2, 0)
        shadow += 2 * density * a * b * np.sqrt(inside) / width
    return shadow


def _picture(row: int, rows: int, columns: int) -> np.ndarray:
    """One row of the phantom as it is to be reconstructed: attenuation per pixel."""
    axis = (np.arange(columns) - (columns - 1) / 2) / (columns / 2)
    picture = np.zeros((columns, columns), np.float32)
    for density, a, b, x, y, tilt in _ellipses(row, rows):
        c, s = np.cos(np.deg2rad(tilt)), np.sin(np.deg2rad(tilt))
        along = (axis[None, :] - x) * c + (axis[:, None] - y) * s
        across = (axis[:, None] - y) * c - (axis[None, :] - x) * s
        picture[(along / a) ** 2 + (across / b) ** 2 <= 1] += density
    return picture * np.float32(2 / columns)


def write_phantom(path: Path, projections: int, rows: int, columns: int, seed: int = 7) -> None:
    """Writes a scan of the phantom, with an uneven detector and a little noise."""
    rng = np.random.default_rng(seed)
    angles = np.arange(projections) * 180.0 / projections
    white = (20_000 * rng.uniform(0.9, 1.1, (rows, columns))).astype(np.float32)
    dark = rng.uniform(90, 110, (rows, columns)).astype(np.float32)
    with h5py.File(path, "w") as file:
        exchange = file.create_group("exchange")
        data = exchange.create_dataset("data", (projections, rows, columns), np.float32)
        for row in range(rows):
            seen = np.exp(-_shadow(row, rows, columns, angles)).astype(np.float32)
            frames = dark[row] + (white[row] - dark[row]) * seen
            data[:, row] = frames + rng.normal(0, 10, frames.shape)
        fields = [frame + rng.normal(0, 10, (10, rows, columns)) for frame in (white, dark)]
        exchange["data_white"], exchange["data_dark"] = (f.astype(np.float32) for f in fields)
        exchange["theta"] = angles
        file["phantom"] = np.stack([_picture(row, rows, columns) for row in range(rows)])
