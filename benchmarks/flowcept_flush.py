"""How much of a run Flowcept spends in flush: by its Mofka message queue, which is Thalweg, its Redis and its Kafka.

    flowcept_flush.py --thalweg PROGRAM --python PROGRAM [--kafka JARS] [--rounds N] [--units N] [--heavy-units N]
                      [--processes N] [--backends NAME ...] [--kinds NAME ...] [--batches N ...]

Flowcept is as it is published, with each backend's own settings; how long a flush takes is Flowcept's
own timing (`mq.timing`). Beside it stands all that publishing took: packing, pushing, flushing, and, for
Thalweg, whose flush is not waited for, the wait at the end until all is stored. Every server has one core,
and the processes the other. When a run is over, a consumer starts and counts what it gets.
Prints tables in Markdown.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE / "peers"))

from flowcept_replay import KINDS  # noqa: E402
from servers import CLIENT_CORE, Kafka, Redis, Server, Thalweg, on_core  # noqa: E402

SETTINGS = """
flowcept_version: 1.0.3
log: {{log_path: {directory}/flowcept.log, log_file_level: error, log_stream_level: critical}}
project: {{db_flush_mode: online, dump_buffer: {{enabled: false}}, enrich_messages: false}}
telemetry_capture: {{}}
mq: {{enabled: true, type: {queue}, group_file: {group_file}, channel: {channel}, host: 127.0.0.1, port: {port},
     timing: true, buffer_size: {batch}, insertion_buffer_time_secs: 3600}}
kv_db: {{enabled: false}}
databases: {{mongodb: {{enabled: false}}, lmdb: {{enabled: false}}}}
"""

BATCHES = {"light": [10, 100, 1_000, 10_000], "heavy": [10, 100, 1_000, 10_000]}
WANTED = {"light": 0.2, "heavy": 0.8}
NAMES = {"mofka": "Thalweg", "redis": "Redis", "kafka": "Kafka"}


class Backend:
    """One message queue of Flowcept's, and its server."""

    def __init__(self, queue: str, server: Server, options: argparse.Namespace) -> None:
        self.queue, self.server, self.options = queue, server, options
        self.runs = 0

    def make_channel(self) -> str:
        self.runs += 1
        channel = f"interception-{self.runs}"
        if self.queue == "mofka":
            control = Path(self.options.python).parent / "mofkactl"
            where = ["--groupfile", str(self.server.group_file)]
            for words in (["topic", "create", channel], ["partition", "add", channel, "--rank", "0"]):
                subprocess.run([control, *words, *where], check=True, capture_output=True, timeout=60)
        if self.queue == "kafka":
            self.admin("create", channel)
        return channel

    def admin(self, what: str, channel: str) -> None:
        code = (
            "import sys; from confluent_kafka.admin import AdminClient, NewTopic\n"
            "client = AdminClient({'bootstrap.servers': sys.argv[1]})\n"
            "made = client.create_topics([NewTopic(sys.argv[3], 1, 1)]) if sys.argv[2] == 'create' "
            "else client.delete_topics([sys.argv[3]])\n"
            "[future.result() for future in made.values()]\n"
        )
        subprocess.run([self.options.python, "-c", code, self.server.broker, what, channel], check=True, timeout=60)

    def remove(self, channel: str) -> None:
        if self.queue == "mofka":
            self.server.remove_topics()
        if self.queue == "kafka":
            self.admin("delete", channel)

    def run(self, channel: str, batch: int, *words: object) -> Any:
        settings = self.server.directory / "flowcept.yaml"
        port = {"mofka": lambda: 0, "redis": lambda: self.server.port,
                "kafka": lambda: self.server.broker.rpartition(":")[2]}[self.queue]()
        settings.write_text(SETTINGS.format(
            directory=self.server.directory, queue=self.queue, channel=channel, port=port, batch=batch,
            group_file=getattr(self.server, "group_file", ""),
        ))
        done = subprocess.run(
            on_core(CLIENT_CORE, [self.options.python, HERE / "flowcept_replay.py", *words]),
            stdout=subprocess.PIPE, text=True, timeout=900, cwd=self.server.directory,
            env={**os.environ, "FLOWCEPT_SETTINGS_PATH": str(settings)},
        )
        if done.returncode:
            raise RuntimeError(f"{self.queue}: status {done.returncode}")
        return json.loads(done.stdout.splitlines()[-1])


def units_of(kind: str, batch: int, options: argparse.Namespace) -> int:
    """Of each process."""
    asked = options.units if kind == "light" else options.heavy_units or options.units // 20
    return max(asked, batch)


def measure(backend: Backend, kind: str, batch: int, options: argparse.Namespace) -> dict[str, Any]:
    """One run. Shares are those of all processes together."""
    units = units_of(kind, batch, options)
    channel = backend.make_channel()
    parts = backend.run(channel, batch, kind, batch, units, options.processes)
    run_s = sum(part["run_s"] for part in parts)
    found = {
        "backend": backend.queue, "kind": kind, "batch": batch,
        "flush": 100 * sum(part["flush_s"] for part in parts) / run_s,
        "publish": 100 * sum(part["publish_s"] for part in parts) / run_s,
        "flush_us": 1e6 * sum(part["flush_s"] for part in parts) / sum(part["flushes"] for part in parts),
        "flush_median_us": 1e6 * statistics.median(part["flush_median_s"] for part in parts),
        "flush_max_ms": 1e3 * max(part["flush_max_s"] for part in parts),
        "final_ms": 1e3 * max(part["final_s"] for part in parts),
        "elapsed_s": max(part["run_s"] for part in parts), "cpu_s": sum(part["cpu_s"] for part in parts),
        "made": units * options.processes, "parts": parts,
    }
    if batch == options.read_batch:
        found["read"] = backend.run(channel, batch, "read", 5)["tasks"]
    backend.remove(channel)
    print(f"{NAMES[backend.queue]}, {kind}, batches of {batch}: {found['flush']:.2f} % in flush, "
          f"{found['elapsed_s']:.1f} s, read afterwards {found.get('read', '-')} of {found['made']}",
          file=sys.stderr, flush=True)
    return found


def spread(values: list[float], digits: int) -> str:
    middle = f"{statistics.median(values):.{digits}f}"
    return middle if len(values) == 1 else f"{middle} [{min(values):.{digits}f} to {max(values):.{digits}f}]"


def report(runs: list[dict[str, Any]]) -> str:
    lines = []
    for kind in BATCHES:
        mine = [run for run in runs if run["kind"] == kind]
        if not mine:
            continue
        head = ["batch", "", "in flush, % of the run", "a flush, µs", "its median, µs", "longest, ms",
                "all of publishing, %", "last wait, ms", "s", "processors of the clients, s", "read afterwards"]
        lines += [f"\n### {kind} units; wanted at most {WANTED[kind]} %\n", "| " + " | ".join(head) + " |",
                  "| " + " | ".join(["---"] * len(head)) + " |"]
        for batch in BATCHES[kind]:
            for queue in NAMES:
                these = [run for run in mine if run["batch"] == batch and run["backend"] == queue]
                if not these:
                    continue
                row = [f"{batch:,}", NAMES[queue]]
                for name, digits in (("flush", 3), ("flush_us", 1), ("flush_median_us", 1), ("flush_max_ms", 2), ("publish", 1),
                                     ("final_ms", 1), ("elapsed_s", 2), ("cpu_s", 2)):
                    row.append(spread([run[name] for run in these], digits))
                read = [f"{100 * run['read'] / run['made']:.0f} %" for run in these if "read" in run]
                row.append(", ".join(dict.fromkeys(read)))
                lines.append("| " + " | ".join(row) + " |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--thalweg", required=True, help="the program `thalweg`")
    parser.add_argument("--python", required=True, help="of the environment that Flowcept is in")
    parser.add_argument("--kafka", type=Path, help="a directory with Kafka's jars; left out without it")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--processes", type=int, default=24)
    parser.add_argument("--units", type=int, default=2_000,
                        help="of each process; no fewer than a batch")
    parser.add_argument("--heavy-units", type=int, help="of each process; default: a twentieth of --units")
    parser.add_argument("--gigabytes", type=float, default=10.0, help="what is more in a run is left out")
    parser.add_argument("--backends", nargs="+", choices=NAMES, default=list(NAMES))
    parser.add_argument("--kinds", nargs="+", choices=BATCHES, default=list(BATCHES))
    parser.add_argument("--batches", type=int, nargs="+", help="only these")
    parser.add_argument("--read-batch", type=int, default=100, help="of which batch's runs everything is read again")
    parser.add_argument("--facts", type=Path, help="a file for all figures, as JSON")
    options = parser.parse_args()
    # Processes run elsewhere; a virtual environment's Python is not resolved.
    options.python = os.path.abspath(options.python)
    runs: list[dict[str, Any]] = []
    before = os.getloadavg()[0]
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="flowcept-")))
        servers = {"mofka": Thalweg(directory / "thalweg", Path(options.thalweg).resolve()),
                   "redis": Redis(directory / "redis", Path("redis-cli"))}
        servers = {queue: server for queue, server in servers.items() if queue in options.backends}
        if options.kafka is not None and "kafka" in options.backends:
            settings = HERE / "peers" / "kafka-server.properties"
            servers["kafka"] = Kafka(directory / "kafka", options.kafka.resolve(), settings, Path("kafka"))
        backends = [Backend(queue, stack.enter_context(server), options) for queue, server in servers.items()]
        for number in range(options.rounds):
            turn = backends[number % len(backends):] + backends[: number % len(backends)]
            for kind in options.kinds:
                for batch in BATCHES[kind]:
                    if options.batches is not None and batch not in options.batches:
                        continue
                    gigabytes = KINDS[kind] * units_of(kind, batch, options) * options.processes / 1e9
                    if gigabytes > options.gigabytes:
                        print(f"{kind}, batches of {batch}: left out, {gigabytes:.1f} GB", file=sys.stderr)
                        continue
                    runs += [measure(backend, kind, batch, options) for backend in turn]
    print(f"{options.rounds} rounds, {options.processes} processes on one core, each server on another; "
          f"load {before:.1f} before")
    print(report(runs))
    if options.facts is not None:
        options.facts.write_text(json.dumps(runs, indent=1))


if __name__ == "__main__":
    main()
