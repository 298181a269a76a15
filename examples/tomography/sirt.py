"""What is computed: normalisation, SIRT over a sliding window, denoising.

Nothing here knows where the arrays come from.
"""

from __future__ import annotations

from collections import deque

import numpy as np

FINE = 4
"""Bins for each column of the detector that pixels are sorted into."""


def normalised(frame: np.ndarray, white: np.ndarray, dark: np.ndarray) -> np.ndarray:
    """Line integrals of the attenuation, from counts: Beer's law."""
    passed = (frame - dark) / np.maximum(white - dark, 1)
    return -np.log(np.maximum(passed, 1e-6), dtype=np.float32)


def rows_of_rank(rank: int, ranks: int, rows: int) -> range:
    """Which rows of the detector a rank reconstructs: as many as any other, or
    one more. Where there are more ranks than rows, rows are given out again.
    """
    if ranks > rows:
        return range(rank % rows, rank % rows + 1)
    each, more = divmod(rows, ranks)
    first = rank * each + min(rank, more)
    return range(first, first + each + (rank < more))


class Projector:
    """Sums of a square picture along the rays of one angle, and back.

    A pixel's value is shared by the two columns of the detector that its
    centre falls between, in proportion. For speed the pixels are sorted into
    bins that are finer than columns, and the bins are shared.
    """

    def __init__(self, size: int, center: float) -> None:
        margin = size // 4 + 2 + int(abs(center - (size - 1) / 2))
        place = (np.arange((size + 2 * margin) * FINE) + 0.5) / FINE - margin - 0.5
        column = np.floor(place).astype(int)
        self.size, self.origin = size, np.float32((center + margin + 0.5) * FINE)
        self.column = np.clip(column + 1, 0, size + 1)
        self.next = np.clip(column + 2, 0, size + 1)
        self.share = (place - column).astype(np.float32)
        axis = np.arange(size, dtype=np.float32) - (size - 1) / 2
        self.axis = (axis * FINE).astype(np.float32)
        self.inside = np.hypot(axis[:, None], axis[None, :]) <= size / 2
        # How long a ray is within the circle that every angle sees; short ones
        # count as longer, for what they lack is noise above all.
        across = np.arange(size) - center
        within = np.maximum((size / 2) ** 2 - across**2, (size / 8) ** 2)
        self.length = (2 * np.sqrt(within)).astype(np.float32)

    def bins(self, angle: float) -> np.ndarray:
        """The bin of every pixel, at that angle in degrees; flat."""
        turn = np.deg2rad(angle)
        along = self.axis * np.float32(np.sin(turn)) + self.origin
        return np.add.outer(along, self.axis * np.float32(np.cos(turn))).astype(np.intp).ravel()

    def forward(self, picture: np.ndarray, bins: np.ndarray) -> np.ndarray:
        """What the detector would see of a flat picture: (columns,)."""
        fine = np.bincount(bins, picture, len(self.share))
        seen = np.bincount(self.column, fine * (1 - self.share), self.size + 2)
        seen += np.bincount(self.next, fine * self.share, self.size + 2)
        return seen[1:-1].astype(np.float32)

    def back(self, seen: np.ndarray, bins: np.ndarray) -> np.ndarray:
        """The transpose: each pixel gets what its columns have. Flat."""
        wide = np.pad(seen, 1)
        fine = wide[self.column] * (1 - self.share) + wide[self.next] * self.share
        return fine.take(bins)


class Window:
    """Slices that are reconstructed from a window that slides over a stream.

    The simultaneous iterative reconstruction technique (Gilbert, J. Theor.
    Biol. 36, 1972): what each projection in the window lacks is divided by the
    rays' length, smeared back, and added to the slices as the projections'
    mean. The state is `slices` and what is in the window, nothing else.
    """

    def __init__(self, size: int, center: float, rows: int, length: int, iterations: int) -> None:
        self.slices = np.zeros((rows, size, size), np.float32)
        self.iterations = iterations
        self._projector = Projector(size, center)
        self._window: deque[tuple[float, np.ndarray]] = deque(maxlen=length)

    def add(self, angle: float, rows: np.ndarray) -> None:
        """One more projection, of shape (rows, columns), copied; the oldest one goes."""
        self._window.append((angle, rows.copy()))

    def reconstruct(self) -> np.ndarray:
        """Goes over the window. Returns the slices, a new array unless there are no iterations."""
        projector = self._projector
        for _ in range(self.iterations):
            flat = self.slices.reshape(len(self.slices), -1)
            wide = flat.astype(np.float64)
            change = np.zeros_like(flat)
            for angle, rows in self._window:
                bins = projector.bins(angle)
                for picture, row, add in zip(wide, rows, change):
                    lacking = (row - projector.forward(picture, bins)) / projector.length
                    add += projector.back(lacking, bins)
            change *= np.float32(1 / len(self._window))
            change += flat
            np.maximum(change, 0, out=change)
            change *= projector.inside.ravel()
            self.slices = change.reshape(self.slices.shape)
        return self.slices


def denoised(slices: np.ndarray, rounds: int = 3) -> tuple[np.ndarray, float, float]:
    """Slices without noise, as bytes, and the values that 0 and 255 stand for.

    Diffusion that stops at edges (Perona and Malik, IEEE PAMI 12, 1990); then
    contrast is stretched over what lies between the extreme half percents.
    """
    smooth = slices.astype(np.float32)
    edge = np.float32(2 * np.median(np.abs(np.diff(slices[..., ::4, ::4]))) + 1e-12)
    for _ in range(rounds):
        flow = np.zeros_like(smooth)
        for axis in (-2, -1):
            step = np.diff(smooth, axis=axis)
            step *= 0.2 / (1 + (step / edge) ** 2)
            lower = [slice(None)] * 3
            upper = [slice(None)] * 3
            lower[axis], upper[axis] = slice(None, -1), slice(1, None)
            flow[tuple(lower)] += step
            flow[tuple(upper)] -= step
        smooth += flow
    low, high = (float(v) for v in np.percentile(smooth[..., ::4, ::4], (0.5, 99.5)))
    scaled = np.clip((smooth - low) * (255 / max(high - low, 1e-12)), 0, 255)
    return scaled.astype(np.uint8), low, high
