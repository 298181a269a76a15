"""What Thalweg costs where things are many, large or stuck.

    scenarios.py --thalweg PROGRAM --build DIR [--scale F] [NAME ...]

    growth      one event's instructions in 10^4 and in 10^8 events of 100 B, produced
    history     likewise, consumed
    topics      one event's instructions with 1 topic and with 1,000
    checked     JSON that topics check, beside the validator alone
    selection   1 % of events of 10 MB, in pieces of 4 KiB and finer
    restart     how soon a server is ready over a large log, after a kill
    stopped     the server's memory while one consumer is stopped

Prints tables in Markdown. Instructions are counted by `perf`, and of the
first three --scale is a factor on the largest count. Everything is on loopback; what is started is ended
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
from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "peers"))
from servers import CLIENT_CORE, Thalweg, on_core  # noqa: E402


# What topics keep of events that are not read again.
KEPT_BYTES = 2 << 30


class Scenarios:
    def __init__(self, options, stack: ExitStack):
        self.options, self.stack = options, stack

    def count(self, full: int) -> int:
        return max(1000, round(full * self.options.scale))

    def server(self) -> Thalweg:
        directory = self.options.build / "run" / "scenario"
        return self.stack.enter_context(Thalweg(directory, self.options.thalweg))

    def bench(self, *words, limits: bool = False) -> dict:
        """A run of the benchmark with a server of its own."""
        command = [self.options.thalweg, "bench", *words, "--json"]
        if not limits:
            command.append("--no-limits")
        os.sync()
        done = subprocess.run(
            list(map(str, command)), check=True, capture_output=True, text=True, timeout=900
        )
        return json.loads(done.stdout)


def told(spread: dict, digits: int = 0) -> str:
    median, least, most = (spread[key] for key in ("median", "min", "max"))
    return f"{median:.{digits}f} [{least:.{digits}f} to {most:.{digits}f}]"


COSTS = (
    "instructions/event, client | server | both, against the first | million events/s |\n"
    "| --- | --- | --- | --- | --- |"
)


def print_costs(title: str, lines: Iterable[tuple[str, dict]]) -> None:
    """What events cost in user space, which does not move with the machine."""
    print(f"| {title} | {COSTS}")
    first = None
    for name, line in lines:
        of_client, of_server = (
            line[side]["instructions"] for side in ("clients_per_event", "server_per_event")
        )
        both = of_client["median"] + of_server["median"]
        first = first or both
        rate = line["events_per_s"]["median"] / 1e6
        print(
            f"| {name} | {told(of_client)} | {told(of_server)} | {both / first:.3f} | {rate:.2f} |",
            flush=True,
        )
    print()


def cost_of_many(run: Scenarios, work: str) -> None:
    counts = sorted({10_000, 100_000, 1_000_000, run.count(100_000_000)})

    def lines():
        for events in counts:
            # One is enough of what takes long: instructions hardly move.
            how = ["--repetitions", 5] if events <= 1_000_000 else ["--repetitions", 1, "--count-first"]
            # What is not read again need not lie on the disk to the end.
            if work == "produce":
                how += ["--retention-bytes", KEPT_BYTES]
            line = run.bench(
                work, "--metadata-bytes", 100, "--events", events, "--durability", "written",
                "--instructions", *how,
            )
            yield f"{events:,}", line

    print_costs(f"{work}, events of 100 B", lines())


def growth(run: Scenarios) -> None:
    cost_of_many(run, "produce")


def history(run: Scenarios) -> None:
    cost_of_many(run, "consume")


def topics(run: Scenarios) -> None:
    def lines(events: int, storage: str, *cases: tuple[int, int]):
        for count, burst in cases:
            line = run.bench(
                "produce", "--metadata-bytes", 100, "--events", events, "--topics", count,
                "--burst", burst, "--storage", storage, "--instructions",
            )
            several = f"{count:,} topics, in turn after {burst:,} of each"
            yield several if count > 1 else "1 topic", line

    for events in sorted({500_000, run.count(5_000_000)}):
        for storage in ("memory", "disk"):
            cases = lines(events, storage, (1, 1), (1000, 1000), (1000, 1))
            print_costs(f"produce, {events:,} events of 100 B, {storage}", cases)


def checked(run: Scenarios) -> None:
    print("| produce, JSON of 1,000 B, checked | million events/s | the validator alone | share |", end="")
    print(" processor ns/event, client | validator alone | share |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for document in ("numbers", "text"):
        for cores in ((), ("--no-pin",)):
            line = run.bench(
                "produce", "--document", document, "--check", "--storage", "memory",
                "--retention-bytes", 256 << 20, "--warmup", 500_000, *cores, limits=True,
            )
            limit = line["limits"]["validator_bytes_per_s"]
            rate, alone, share = (
                {key: value * factor for key, value in spread.items()}
                for spread, factor in (
                    (line["events_per_s"], 1e-6),
                    (limit, 1e-9),
                    (line["shares"]["validator_bytes_per_s"], 100),
                )
            )
            own, of_validator = line["clients_per_event"]["cpu_ns"], 1e12 / limit["median"]
            name = document + (", cores as the kernel likes" if cores else ", one core for the client")
            print(
                f"| {name} | {told(rate, 2)} | {told(alone, 2)} | {told(share)} % | "
                f"{told(own)} | {of_validator:.0f} | {of_validator / own['median']:.0%} |",
                flush=True,
            )
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
    definition = json.dumps({"version": 1, "retention": {"bytes": KEPT_BYTES}})
    create = [program, "topic", "create", "watched", "-g", group, "--definition", definition]
    subprocess.run(
        [*create, "--durability", "written"], check=True, capture_output=True, timeout=60
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


NAMES = {f.__name__: f for f in (growth, history, topics, checked, selection, restart, stopped)}


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
