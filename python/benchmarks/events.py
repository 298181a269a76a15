"""What one event costs in Python: pushing dicts, and iterating.

    python python/benchmarks/events.py [--group-file thalweg.json] [--count 1000000]

Without a group file it starts a server of its own, on a partition in memory.
Each figure is the best of some rounds, for other programs disturb; the rate of
the producer runs to the last acknowledgement. Compare figures of one run only.
"""

from __future__ import annotations

import argparse
import itertools
import subprocess
import tempfile
import time
import uuid
from collections.abc import Callable
from pathlib import Path

import thalweg

DOCUMENT = {"angle": 0.5, "index": 123456, "detector": "eiger-4m", "exposure": 0.01, "ok": True}


def best(rounds: int, count: int, work: Callable[[], None]) -> float:
    """Nanoseconds for each event, in the best round."""
    times = []
    for _ in range(rounds):
        begun = time.perf_counter_ns()
        work()
        times.append((time.perf_counter_ns() - begun) / count)
    return min(times)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--group-file", type=Path)
    parser.add_argument("--count", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        group_file = options.group_file or Path(directory) / "thalweg.json"
        server = None
        if options.group_file is None:
            command = [thalweg.executable(), "serve", f"{directory}/data"]
            server = subprocess.Popen([*command, "--group-file", str(group_file)])
        try:
            measure(group_file, options.count, options.rounds)
        finally:
            if server is not None:
                server.terminate()
                server.wait()


def measure(group_file: Path, count: int, rounds: int) -> None:
    def report(what: str, nanoseconds: float) -> None:
        print(f"{what:44} {nanoseconds:7.0f} ns/event {1e3 / nanoseconds:7.3f} M/s", flush=True)

    with thalweg.Driver(group_file, connect_timeout=60) as driver:
        topic = driver.create_topic(f"benchmark-{uuid.uuid4()}", storage="memory")
        text = thalweg._json.dumps(DOCUMENT)
        print(f"{count} events with {len(text)} bytes of metadata, best of {rounds} rounds")
        with topic.producer() as producer:
            push = producer.push

            def push_dicts() -> None:
                for _ in range(count):
                    push(DOCUMENT)
                producer.flush()

            def push_bytes() -> None:
                for _ in range(count):
                    push(text)
                producer.flush()

            def push_lists() -> None:
                for _ in range(count // 10_000):
                    producer.push_many([DOCUMENT] * 10_000)
                producer.flush()

            def push_nothing() -> None:
                for _ in range(count):
                    pass

            report("an empty loop", best(rounds, count, push_nothing))
            report("orjson.dumps(dict), for comparison", best(rounds, count, dumps_alone(count)))
            report("push(dict), flush included", best(rounds, count, push_dicts))
            report("push(bytes), flush included", best(rounds, count, push_bytes))
            report("push_many(dicts), flush included", best(rounds, count, push_lists))

        # What lies ready in this process: the price of the loop alone.
        ready = min(count, 200_000)
        times = []
        for _ in range(rounds):
            with topic.consumer(
                str(uuid.uuid4()), start="beginning", credit_bytes=256 << 20
            ) as consumer:
                next(consumer)
                time.sleep(1)
                begun = time.perf_counter_ns()
                for _ in itertools.islice(consumer, ready):
                    pass
                times.append((time.perf_counter_ns() - begun) / ready)
        report("iterate, events lie ready", min(times))

        def iterate() -> None:
            with topic.consumer(str(uuid.uuid4()), start="beginning") as consumer:
                left = count
                for _ in consumer:
                    left -= 1
                    if not left:
                        break

        def iterate_metadata() -> None:
            with topic.consumer(str(uuid.uuid4()), start="beginning") as consumer:
                left = count
                for event in consumer:
                    event.metadata
                    left -= 1
                    if not left:
                        break

        report("iterate, from the server", best(rounds, count, iterate))
        report("iterate, metadata parsed", best(rounds, count, iterate_metadata))
        driver.delete_topic(topic.name)


def dumps_alone(count: int) -> Callable[[], None]:
    dumps = thalweg._json.dumps

    def work() -> None:
        for _ in range(count):
            dumps(DOCUMENT)

    return work


if __name__ == "__main__":
    main()
