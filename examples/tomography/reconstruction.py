"""Reconstruction: one rank's rows become slices, by SIRT over a sliding window.

Each step's slices are one event that says how many projections they were made
from. So the stream is the checkpoint: killed and started again, a rank takes
the newest slices, reads the window before them once more, and goes on with the
very same numbers as if nothing had happened.
"""

from __future__ import annotations

import argparse
import time

import numpy as np

import thalweg
from component import PATIENCE_S, Meter, Settling, connect, last_event, options_of, ready, report
from sirt import Window


def rows_of(event: thalweg.Event) -> np.ndarray:
    metadata = event.metadata
    return event.numpy(np.float32, (metadata["rows"], metadata["columns"]))


class Rank:
    """The state of one rank: its window, and how much of its partition is in it."""

    def __init__(self, options: argparse.Namespace, driver: thalweg.Driver) -> None:
        self.options = options
        self.rows = driver.open_topic("rows")
        self.slices = driver.open_topic("slices")
        self.window: Window | None = None
        self.used = 0
        self.published = 0
        self.step = 0
        self.over = False

    def add(self, event: thalweg.Event) -> None:
        """Takes one projection's rows into the window."""
        metadata, options = event.metadata, self.options
        if self.window is None:
            self.window = Window(
                metadata["columns"], metadata["center"], metadata["rows"],
                options.window, options.iterations,
            )
        self.window.add(metadata["angle"], rows_of(event))

    def resume(self) -> None:
        """Goes back to where the newest slices were published."""
        last = last_event(self.slices, self.options.rank)
        if last is None:
            return
        if "end" in last.metadata:
            self.over = True
            return
        self.step, self.used = last.metadata["step"], last.metadata["projections"]
        self.published = self.used
        first = max(0, self.used - self.options.window)
        # A name of its own, so that no cursor is moved.
        with self.rows.consumer(
            f"window-{self.options.rank}", start=first, partitions=[self.options.rank]
        ) as consumer:
            for _ in range(first, self.used):
                event = consumer.pull(PATIENCE_S)
                assert event is not None, "the distribution sent it before"
                self.add(event)
        assert self.window is not None, "slices come from projections"
        self.window.slices = np.empty_like(self.window.slices)
        self.slices.read_data(last, buffer=self.window.slices)

    def made(self) -> tuple[dict[str, object], np.ndarray]:
        """One step: metadata and slices."""
        assert self.window is not None, "a step has projections"
        self.step += 1
        self.published = self.used
        slices = self.window.reconstruct()
        return {
            "type": "slices",
            "step": self.step,
            "projections": self.used,
            "rank": self.options.rank,
            "ranks": len(self.slices.partitions),
            "rows": slices.shape[0],
            "shape": slices.shape,
            "dtype": str(slices.dtype),
            "method": "simultaneous iterative reconstruction",
            "window": self.options.window,
            "window_step": self.options.step,
            "iterations": self.options.iterations,
            "unit": "attenuation per pixel",
        }, slices


def main() -> None:
    parser = options_of(__doc__.splitlines()[0])
    parser.add_argument("--rank", type=int, required=True)
    parser.add_argument("--window", type=int, default=32, help="projections in the window")
    parser.add_argument("--step", type=int, default=16, help="projections between published slices")
    parser.add_argument("--iterations", type=int, default=1, help="rounds over the window in each step")
    options = parser.parse_args()
    consume, produce = Meter(), Meter()
    name = f"reconstruction-{options.rank}"
    with connect(options, name) as driver:
        rank = Rank(options, driver)
        # Whoever has the producer's name is alone, so what is stored stays as it is.
        with rank.slices.producer(name=name, batch=options.batch) as producer:
            rank.resume()
            consumer = rank.rows.consumer(name, start=rank.used, partitions=[options.rank])
            ready(options)
            settling = Settling(consumer)
            while not rank.over:
                event = consume.pull(consumer)
                rank.over = "end" in event.metadata
                if not rank.over:
                    rank.add(event)
                    rank.used += 1
                due = rank.over or rank.used % options.step == 0
                if due and rank.used > rank.published:
                    metadata, slices = rank.made()
                    future = produce.push(
                        producer.push, metadata, slices, partition=options.rank, time=time.time_ns()
                    )
                    settling.add(event.id, [future])
                if rank.over:
                    end = producer.push(
                        {"end": True, "projections": rank.used}, partition=options.rank, time=time.time_ns()
                    )
                    settling.add(event.id, [end])
            produce.wait(producer.close)
            settling.finish()
            consume.wait(consumer.close)
    report(options, consume=consume, produce=produce)


if __name__ == "__main__":
    main()
