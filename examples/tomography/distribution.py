"""Distribution: normalises projections and gives each rank its rows.

Partition i of `rows` is rank i's, and its offset k is the k-th projection. So
how far this component came can be read from what it made: killed and started
again it goes on there, and nothing is made twice.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np

import thalweg
from component import Meter, Settling, connect, is_over, options_of, ready, report, stored
from sirt import normalised, rows_of_rank


class Distributor:
    """What is known of the scan, and what each rank gets."""

    def __init__(self, ranks: int) -> None:
        self.ranks = ranks
        self.head: dict[str, Any] = {}
        self.fields: dict[str, list[np.ndarray]] = {"white": [], "dark": []}
        self.white: np.ndarray | None = None
        self.dark: np.ndarray | None = None

    def introduced(self, event: thalweg.Event) -> bool:
        """Whether an event is of those in front of the projections."""
        metadata = event.metadata
        if "columns" in metadata:
            self.head = metadata
        elif "field" in metadata:
            self.fields[metadata["field"]].append(self._frame(event).copy())
        else:
            if self.white is None and self.head:
                self.white, self.dark = (np.mean(self.fields[f], 0) for f in ("white", "dark"))
            return False
        return True

    def _frame(self, event: thalweg.Event) -> np.ndarray:
        return event.numpy(np.float32, (self.head["rows"], self.head["columns"]))

    def parts(self, event: thalweg.Event, number: int) -> list[tuple[dict[str, Any], np.ndarray]]:
        """Metadata and rows for each rank, of one projection."""
        assert self.white is not None and self.dark is not None, "fields come first"
        lines = normalised(self._frame(event), self.white, self.dark)
        parts = []
        for rank in range(self.ranks):
            rows = rows_of_rank(rank, self.ranks, self.head["rows"])
            metadata = {
                "type": "rows",
                "number": number,
                "projection": event.metadata["projection"],
                "angle": event.metadata["angle"],
                "center": self.head["center"],
                "first_row": rows.start,
                "rows": len(rows),
                "columns": self.head["columns"],
                "rank": rank,
                "ranks": self.ranks,
            }
            parts.append((metadata, lines[rows.start : rows.stop]))
        return parts


def main() -> None:
    options = options_of(__doc__.splitlines()[0]).parse_args()
    consume, produce = Meter(), Meter()
    with connect(options, "distribution") as driver:
        topic, rows_topic = driver.open_topic("projections"), driver.open_topic("rows")
        ranks = len(rows_topic.partitions)
        distributor = Distributor(ranks)
        with rows_topic.producer(name="distribution", batch=options.batch) as producer:
            done = [stored(rows_topic, rank) for rank in range(ranks)]
            over = all(is_over(rows_topic, rank) for rank in range(ranks))
            # What describes the scan is read again, whatever was done.
            consumer = topic.consumer("distribution", start="beginning")
            settling = Settling(consumer)
            ready(options)
            number = None
            while not over:
                event = consume.pull(consumer)
                if distributor.introduced(event):
                    continue
                if number is None:
                    number = min(done)
                    if number > 0:
                        consumer.seek(0, event.id.offset + number)
                        continue
                over = "end" in event.metadata
                parts = [] if over else distributor.parts(event, number)
                made = [
                    produce.push(
                        producer.push, metadata, rows, partition=rank, time=time.time_ns()
                    )
                    for rank, (metadata, rows) in enumerate(parts)
                    if number >= done[rank]
                ]
                if over:
                    made = [
                        producer.push(event.metadata, partition=rank, time=time.time_ns())
                        for rank in range(ranks)
                        if number >= done[rank]
                    ]
                settling.add(event.id, made)
                number += 1
            produce.wait(producer.close)
            settling.finish()
            consume.wait(consumer.close)
    report(options, consume=consume, produce=produce)


if __name__ == "__main__":
    main()
