"""What the copy of a safe push costs: large data pushed by copy and borrowed, in turn.

    python python/benchmarks/copies.py [--transport tcp shm] [--mb 1 10] [--rounds 7] [--output FILE]

Starts a server of its own for each transport, with a topic in memory that keeps little. A round pushes the same buffer
again and again by copy, then as many times borrowed, and ends with the last acknowledgement. The share is that of
the rates of one round, so that what else the machine does meets both alike. `--output` keeps all rounds as JSON.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import tempfile
import time
from pathlib import Path

import thalweg

MB = 1_000_000
# A round moves about so much.
ROUND_BYTES = 2_000 * MB
KEPT_BYTES = 200 * MB


def rate(producer: thalweg.Producer, data: bytearray, count: int, borrow: bool) -> float:
    """MB/s of `count` pushes of `data`, until the last is acknowledged."""
    begun = time.perf_counter()
    for number in range(count):
        producer.push({"number": number}, data, borrow=borrow)
    producer.flush()
    return count * len(data) / MB / (time.perf_counter() - begun)


def memcpy(data: bytearray, count: int) -> float:
    """MB/s of `count` copies of `data` to one other place."""
    target = bytearray(len(data))
    begun = time.perf_counter()
    for _ in range(count):
        target[:] = data
    return count * len(data) / MB / (time.perf_counter() - begun)


def measure(group_file: Path, transport: str, mb: int, rounds: int) -> dict:
    """The rates of all rounds, in MB/s."""
    data, count = bytearray(mb * MB), ROUND_BYTES // (mb * MB)
    rows: dict = {"transport": transport, "mb": mb, "copied": [], "borrowed": [], "memcpy": []}
    with thalweg.Driver(group_file, connect_timeout=60) as driver:
        retention = {"bytes": KEPT_BYTES}
        name = f"copies-{transport}-{mb}"
        topic = driver.create_topic(name, storage="memory", retention=retention, exist_ok=True)
        with topic.producer() as producer:
            for borrow in (False, True):
                rate(producer, data, count // 4, borrow)
            for number in range(rounds):
                # In turn, and each of them first as often.
                for borrow in (number % 2 == 1, number % 2 == 0):
                    which = "borrowed" if borrow else "copied"
                    rows[which].append(rate(producer, data, count, borrow))
                rows["memcpy"].append(memcpy(data, count))
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--transport", nargs="+", default=["tcp", "shm"])
    parser.add_argument("--mb", nargs="+", type=int, default=[1, 10])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--output", type=Path)
    options = parser.parse_args()
    results = []
    print("| transport | event | copied | borrowed | copied / borrowed | spread | a copy alone |")
    print("|---|---|---|---|---|---|---|")
    for transport in options.transport:
        with tempfile.TemporaryDirectory() as directory:
            group_file = Path(directory) / "thalweg.json"
            command = [thalweg.executable(), "serve", f"{directory}/data"]
            command += ["--group-file", str(group_file)]
            if transport == "tcp":
                command += ["--listen", "tcp://127.0.0.1:0", "--no-unix-socket"]
            server = subprocess.Popen(command, stdout=subprocess.DEVNULL)
            try:
                for mb in options.mb:
                    rows = measure(group_file, transport, mb, options.rounds)
                    results.append(rows)
                    print(line(rows), flush=True)
            finally:
                server.terminate()
                server.wait()
    if options.output:
        options.output.write_text(json.dumps(results, indent=1) + "\n")


def line(rows: dict) -> str:
    shares = [copied / lent for copied, lent in zip(rows["copied"], rows["borrowed"], strict=True)]
    middle = {which: statistics.median(rows[which]) for which in ("copied", "borrowed", "memcpy")}
    return (
        f"| {rows['transport']} | {rows['mb']} MB | {middle['copied']:.0f} MB/s | {middle['borrowed']:.0f} MB/s "
        f"| {statistics.median(shares):.0%} | {min(shares):.0%} to {max(shares):.0%} | {middle['memcpy']:.0f} MB/s |"
    )


if __name__ == "__main__":
    main()
