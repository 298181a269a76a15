"""What Thalweg costs where things are many, large or stuck.

    scenarios.py --thalweg PROGRAM --build DIR [--scale F] [NAME ...]

    growth      one event's cost in 10^4 and in 10^7 events of 100 B
    topics      one event's cost with 1 topic and with 1,000
    selection   1 % of events of 10 MB, in pieces of 4 KiB and finer
    restart     how soon a server is ready over a large log, after a kill
    stopped     the server's memory while one consumer is stopped

Prints tables in Markdown. Everything is on loopback; what is started is ended
by its process id, and nothing is left in the build directory.
"""

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "peers"))
from servers import CLIENT_CORE, Thalweg, on_core  # noqa: E402


class Scenarios:
    def __init__(self, options, stack: ExitStack):
        self.options, self.stack = options, stack

    def count(self, full: int) -> int:
        return max(1000, round(full * self.options.scale))

    def server(self) -> Thalweg:
        directory = self.options.build / "run" / "scenario"
        return self.stack.enter_context(Thalweg(directory, self.options.thalweg))

    def bench(self, *words) -> dict:
        """A run of the benchmark with a server of its own."""
        command = [self.options.thalweg, "bench", *words, "--json", "--no-limits"]
        os.sync()
        done = subprocess.run(
            list(map(str, command)), check=True, capture_output=True, text=True, timeout=900
        )
        return json.loads(done.stdout)


def told(spread: dict, digits: int = 0) -> str:
    median, least, most = (spread[key] for key in ("median", "min", "max"))
    return f"{median:.{digits}f} [{least:.{digits}f} to {most:.{digits}f}]"


def costs(line: dict) -> str:
    clients, server = line["clients_per_event"], line["server_per_event"]
    return (
        f"{told(clients['cpu_ns'])} | {told(server['cpu_ns'])} | "
        f"{line['events_per_s']['median'] / 1e6:.2f}"
    )


COSTS = "processor ns/event, client | server | million events/s |\n| --- | --- | --- | --- |"


def growth(run: Scenarios) -> None:
    for work in ("produce", "consume"):
        print(f"| {work}, events of 100 B | {COSTS}")
        for events in sorted({10_000, 100_000, run.count(1_000_000), run.count(10_000_000)}):
            repetitions = 20 if events < 1_000_000 else 3
            line = run.bench(
                work, "--metadata-bytes", 100, "--events", events, "--durability", "written",
                "--repetitions", repetitions,
            )
            print(f"| {events:,} | {costs(line)} |", flush=True)
        print()


def topics(run: Scenarios) -> None:
    events = run.count(1_000_000)
    print(f"| produce, {events:,} events of 100 B | {COSTS}")
    for count, burst in ((1, 1), (1000, 1000), (1000, 1)):
        line = run.bench(
            "produce", "--metadata-bytes", 100, "--events", events, "--topics", count,
            "--burst", burst, "--storage", "memory", "--repetitions", 3,
        )
        name = f"{count:,} topics, in turn after {burst:,} events" if count > 1 else "1 topic"
        print(f"| {name} | {costs(line)} |", flush=True)
    print()


def selection(run: Scenarios) -> None:
    events = max(10, round(100 * run.options.scale))
    print("| consume events of 10 MB | s | share of the whole's time | bytes of all |")
    print("| --- | --- | --- | --- |")
    whole = None
    cases = [(None, None), (4096, 409_600), (32_768, 3_276_800), (512, 51_200), (64, 6_400)]
    for piece, every in cases:
        words = ["--metadata-bytes", 16, "--data-bytes", 10_000_000, "--events", events]
        words += ["--durability", "written"]
        if piece:
            words += ["--piece-bytes", piece, "--piece-every", every]
        line = run.bench("consume", *words)
        seconds = line["seconds"]
        whole = whole or seconds["median"]
        bytes_each = line["bytes_per_s"]["median"] / line["events_per_s"]["median"]
        name = "all" if piece is None else f"{piece:,} B of every {every:,}"
        print(
            f"| {name} | {told(seconds, 4)} | {seconds['median'] / whole:.1%} | "
            f"{bytes_each / 10_000_016:.2%} |",
            flush=True,
        )
    print()


def produce_bytes(server: Thalweg, size: int, total: int) -> None:
    server.bench("produce", metadata_bytes=size, events=total // size, durability="synced")


def restart(run: Scenarios) -> None:
    total = round(20e9 * run.options.scale)
    server = run.server()
    produce_bytes(server, 1000, total)
    times = []
    for _ in range(5):
        server.process.send_signal(signal.SIGKILL)
        server.process.wait()
        server.group_file.unlink(missing_ok=True)
        began = time.monotonic()
        server.start()
        times.append(time.monotonic() - began)
    median, least, most = statistics.median(times), min(times), max(times)
    print("| restart after a kill | s until it is ready |\n| --- | --- |")
    print(f"| {total / 1e9:.1f} GB in the log | {median:.2f} [{least:.2f} to {most:.2f}] |\n")


def memory_bytes(pid: int, name: str) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(name):
            return int(line.split()[1]) * 1024
    raise RuntimeError(f"no {name} of process {pid}")


def stopped(run: Scenarios) -> None:
    total = round(20e9 * run.options.scale)
    server = run.server()
    program, group = str(run.options.thalweg), str(server.group_file)
    subprocess.run(
        [program, "topic", "create", "watched", "-g", group, "--durability", "written"],
        check=True, capture_output=True, timeout=60,
    )
    follow = [program, "consume", "watched", "-g", group, "--name", "stopped", "--follow"]
    consumer = subprocess.Popen(on_core(CLIENT_CORE, follow), stdout=subprocess.DEVNULL)
    try:
        time.sleep(1)
        consumer.send_signal(signal.SIGSTOP)
        print("| produced while a consumer is stopped, GB | server's resident memory, MB |")
        print("| --- | --- |")
        steps = 10
        line = b'{"x":"' + b"x" * 991 + b'"}\n'
        for step in range(1, steps + 1):
            produce = [program, "produce", "watched", "-g", group]
            pushed = subprocess.Popen(
                on_core(CLIENT_CORE, produce), stdin=subprocess.PIPE, stdout=subprocess.DEVNULL
            )
            chunk = line * 1000
            for _ in range(total // steps // len(chunk)):
                pushed.stdin.write(chunk)
            pushed.stdin.close()
            if pushed.wait(600):
                raise RuntimeError("producing failed")
            resident = memory_bytes(server.process.pid, "VmRSS:")
            print(f"| {total * step / steps / 1e9:.1f} | {resident / 1e6:.0f} |", flush=True)
        peak = memory_bytes(server.process.pid, "VmHWM:")
        print(f"| at most, at any time | {peak / 1e6:.0f} |\n")
    finally:
        consumer.kill()
        consumer.wait()


NAMES = {f.__name__: f for f in (growth, topics, selection, restart, stopped)}


def main() -> None:
    parser = argparse.ArgumentParser(description="What Thalweg costs where things are many.")
    parser.add_argument("--thalweg", type=Path, required=True)
    parser.add_argument("--build", type=Path, required=True)
    parser.add_argument("--scale", type=float, default=1.0, help="factor on the largest counts")
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(NAMES))
    options = parser.parse_args()
    # What was started ends with this program, also when it is told to end.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    for name in options.names:
        if name not in NAMES:
            parser.error(f"{name}: no such scenario; there are {', '.join(NAMES)}")
    options.thalweg, options.build = options.thalweg.resolve(), options.build.resolve()
    for name in options.names or NAMES:
        print(f"### {name}\n", flush=True)
        with ExitStack() as stack:
            NAMES[name](Scenarios(options, stack))


if __name__ == "__main__":
    main()
