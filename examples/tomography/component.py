"""What the components of the pipeline share: options, resuming, counting time."""

from __future__ import annotations

import argparse
import json
import resource
import sys
import time
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import thalweg

PATIENCE_S = 600.0
"""How long a component waits for its input before it gives up: a bound on hanging, no more."""


def options_of(description: str) -> argparse.ArgumentParser:
    """The options that every component has."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--group-file", help="of the server, as `thalweg serve` writes it")
    parser.add_argument("--address", help="connect there, instead of where the group file says")
    parser.add_argument("--batch", type=int, help="events in a batch; without it, as it suits")
    parser.add_argument("--report", type=Path, help="a file for what calls into the stream took")
    parser.add_argument("--wait", action="store_true", help="say `ready`, then wait for a line on standard input")
    return parser


def connect(options: argparse.Namespace, name: str) -> thalweg.Driver:
    """A driver, by group file, or by an address and the token of the group file."""
    if options.address is None:
        return thalweg.Driver(options.group_file, client_name=name, connect_timeout=60)
    token = json.loads(Path(options.group_file).read_text())["token"]
    return thalweg.Driver(address=options.address, token=token, client_name=name, connect_timeout=60)


def ready(options: argparse.Namespace) -> None:
    """Everything is open; with `--wait`, begin when told to."""
    if options.wait:
        print("ready", flush=True)
        sys.stdin.readline()


def stored(topic: thalweg.Topic, partition: int = 0) -> int:
    """How many events a partition has taken in all its life."""
    topic.refresh()
    return topic.partitions[partition].end


def last_event(topic: thalweg.Topic, partition: int) -> thalweg.Event | None:
    """The newest event of a partition, without its data."""
    end = stored(topic, partition)
    if end == topic.partitions[partition].first:
        return None
    return topic.fetch(partition, end - 1, timeout=PATIENCE_S)[-1]


def is_over(topic: thalweg.Topic, partition: int) -> bool:
    """Whether a partition's newest event says that nothing comes any more."""
    last = last_event(topic, partition)
    return last is not None and "end" in last.metadata


class Settling:
    """Inputs that are acknowledged once what was made from them is stored."""

    def __init__(self, consumer: thalweg.Consumer) -> None:
        self._consumer = consumer
        self._made: deque[tuple[thalweg.EventId, Sequence[thalweg.Future]]] = deque()

    def add(self, input_id: thalweg.EventId, made: Sequence[thalweg.Future]) -> None:
        """`made` came of everything up to `input_id`. Does not block."""
        self._made.append((input_id, made))
        done = None
        while self._made and all(future.done() for future in self._made[0][1]):
            done, futures = self._made.popleft()
            for future in futures:
                future.result()
        if done is not None:
            self._consumer.acknowledge(done)

    def finish(self) -> None:
        """Waits for what is not stored yet, then acknowledges it."""
        for input_id, futures in self._made:
            for future in futures:
                future.result(PATIENCE_S)
            self._consumer.acknowledge(input_id)
        self._made.clear()


class Meter:
    """What calls into a stream took, in nanoseconds.

    A consumer that waits for what nobody has made yet is not held up by the
    stream: `held` counts a pull from when the event was handed to the stream.
    """

    def __init__(self) -> None:
        self.calls: list[int] = []
        self.held: list[int] = []
        self.waits = 0

    def push(self, call: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        """Calls what sends one event."""
        begun = time.time_ns()
        result = call(*arguments, **options)
        took = time.time_ns() - begun
        self.calls.append(took)
        self.held.append(took)
        return result

    def pull(self, consumer: thalweg.Consumer) -> thalweg.Event:
        """The next event."""
        begun = time.time_ns()
        event = consumer.pull(PATIENCE_S)
        if event is None:
            raise TimeoutError(f"{consumer.name}: no event within {PATIENCE_S:.0f} s")
        self.pulled(begun, event.time)
        return event

    def pulled(self, begun: int, handed_over: int | None) -> None:
        """A pull is over that began at `begun`."""
        now = time.time_ns()
        self.calls.append(now - begun)
        self.held.append(now - max(begun, handed_over or 0))

    def wait(self, call: Callable[[], Any]) -> None:
        """Calls what waits for all that is under way."""
        begun = time.time_ns()
        call()
        self.waits += time.time_ns() - begun

    def summary(self) -> dict[str, float]:
        """Microseconds; `blocked` is all of `held` and the waits, divided by the events."""
        if not self.calls:
            return {"events": 0}
        held = np.array(self.held)
        return {
            "events": len(self.calls),
            "blocked_us": (int(held.sum()) + self.waits) / len(held) / 1e3,
            "in_calls_us": (sum(self.calls) + self.waits) / len(held) / 1e3,
            "waits_us": self.waits / 1e3,
            "min_us": float(held.min()) / 1e3,
            "median_us": float(np.median(held)) / 1e3,
            "p99_us": float(np.percentile(held, 99)) / 1e3,
            "max_us": float(held.max()) / 1e3,
        }


def report(options: argparse.Namespace, **meters: Meter) -> None:
    """Writes what the calls took, and what the process used of the processors."""
    if options.report is None:
        return
    used = resource.getrusage(resource.RUSAGE_SELF)
    facts: dict[str, Any] = {name: meter.summary() for name, meter in meters.items()}
    facts |= {"cpu_s": used.ru_utime + used.ru_stime, "ended": time.time()}
    options.report.write_text(json.dumps(facts))
