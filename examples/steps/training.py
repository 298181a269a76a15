"""A reader of the waves that learns from them while they run: what a cell will be in the next step.

    python training.py GROUP_FILE DIRECTORY

A linear model of the nine cells around a cell, and of how these change, is fitted by stochastic
gradients. Only the rows beside the lens are read. Its error is logged beside that of the guess that nothing
changes.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
from log import Log
from waves import Array

import thalweg
from thalweg import steps

BATCHES = 12
BATCH = 256


class Adam:
    """Weights, and how fast each of them learns."""

    def __init__(self, count: int) -> None:
        self.weights, self.first, self.second = np.zeros((3, count))
        self.number = 0

    def learn(self, gradient: Array, rate: float) -> None:
        self.number += 1
        self.first += 0.1 * (gradient - self.first)
        self.second += 0.01 * (gradient**2 - self.second)
        first, second = self.first / (1 - 0.9**self.number), self.second / (1 - 0.99**self.number)
        self.weights -= rate * first / (np.sqrt(second) + 1e-9)


def features(u: Array, v: Array) -> Array:
    """The cells around each inner cell: `(cells, 18)`."""
    around = [np.lib.stride_tricks.sliding_window_view(one, (3, 3)).reshape(-1, 9) for one in (u, v)]
    return np.concatenate(around, axis=1)


def main() -> None:
    group_file, directory = sys.argv[1], Path(sys.argv[2])
    random = np.random.default_rng(1)
    model = Adam(18)
    before: tuple[int, Array, Array] | None = None
    with (
        Log(directory / "training.log") as log,
        thalweg.Driver(group_file, connect_timeout=60) as driver,
        steps.Reader(driver, "waves", name="training") as reader,
    ):
        for step in reader:
            rows, columns = step["u"].shape
            # The rows above the lens, of all columns.
            box = np.s_[: rows // 4 - 1, :]
            fields = step.get_many({"u": box, "v": box})
            u, v = fields["u"], fields["v"]
            if before is not None and before[0] == step.number - 1:
                known, wanted = features(before[1], before[2]), u[1:-1, 1:-1].ravel()
                loss = 0.0
                for _ in range(BATCHES):
                    some = random.integers(len(wanted), size=BATCH)
                    x, error = known[some], known[some] @ model.weights - wanted[some]
                    rate = 0.03 / (1 + model.number / 600)
                    model.learn(2 * x.T @ error / BATCH, rate)
                    loss += float((error**2).mean()) / BATCHES
                change = float(((u - before[1])[1:-1, 1:-1] ** 2).mean())
                log.write(step.number, loss=loss, change=change, nbytes=u.nbytes + v.nbytes)
            before = (step.number, u, v)


if __name__ == "__main__":
    main()
