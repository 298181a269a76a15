"""Measures Thalweg and its peers in turn: A, B, C, A, B, C, ... on loopback,
every server on one core and every client on the other.

    compare.py --thalweg PROGRAM --python PROGRAM --build DIR --output DIR [--rounds N] [--scale F]
               [--against PROGRAM] [CASE ...]

With --against, another build of Thalweg takes the place of all peers. Prints tables in Markdown;
writes peers.json (or builds.json) and one SVG a case to the output directory. Nothing is left running, and no file outside --build and --output.
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

import plots
from programs import PROGRAMS
from servers import (
    CLIENT_CORE,
    SERVER_CORE,
    Kafka,
    Rabbit,
    Redis,
    Thalweg,
    client,
    cpu_seconds,
    free_port,
)
from sharing import SHARING

HERE = Path(__file__).parent


class Absent:
    """A peer that is left out: it takes every call, and does nothing."""

    def __getattr__(self, _name):
        return lambda *_arguments, **_options: None


class Bench:
    """What the cases need: servers that live for one case, and counts. With `program`, that build of
    Thalweg and no peers."""

    def __init__(self, options, stack: ExitStack, program: Path | None = None):
        self.options, self.stack = options, stack
        self.program = program or options.thalweg
        self.has_peers = program is None
        self.scratch = options.build / "run"
        if program is not None:
            self.scratch /= "this" if program == options.thalweg else "other"

    def count(self, full: int) -> int:
        return max(100, round(full * self.options.scale))

    def thalweg(self, transport: str = "tcp", spin_us: int | None = None) -> Thalweg:
        directory = self.scratch / f"thalweg-{transport}-{spin_us}"
        server = Thalweg(directory, self.program, transport, spin_us)
        return self.stack.enter_context(server)

    def kafka(self) -> Kafka | Absent:
        if not self.has_peers:
            return Absent()
        jars, settings = self.options.build / "kafka", HERE / "kafka-server.properties"
        program = self.options.build / "bin" / "kafka"
        server = Kafka(self.scratch / "kafka", jars, settings, program)
        return self.stack.enter_context(server)

    def redis(self) -> Redis | Absent:
        if not self.has_peers:
            return Absent()
        program = self.options.build / "bin" / "redis"
        return self.stack.enter_context(Redis(self.scratch / "redis", program))

    def rabbit(self) -> Rabbit | Absent:
        if not self.has_peers:
            return Absent()
        program = self.options.build / "bin" / "rabbit"
        return self.stack.enter_context(Rabbit(self.scratch / "rabbit", program))

    def zeromq(self, work: str, endpoint: str, events: int, size: int) -> dict:
        program = self.options.build / "bin" / "zeromq"
        if endpoint == "tcp":
            endpoint = f"tcp://127.0.0.1:{free_port()}"
        else:
            endpoint = f"ipc://{self.scratch / 'zeromq'}"
        return client([program, work, endpoint, events, size, SERVER_CORE])


def produce_case(size: int, events: int, redis: bool, zeromq: bool, levels: list[str]):
    def make(bench: Bench):
        count = bench.count(events)
        thalweg, kafka = bench.thalweg(), bench.kafka()

        def ours(level):
            storage = "memory" if level == "memory" else "disk"
            return lambda: thalweg.bench(
                "produce", metadata_bytes=size, events=count, storage=storage, durability=level
            )

        def theirs():
            topic = kafka.fresh_name()
            kafka.create(topic)
            return kafka.run("produce", topic, count, size, kafka.producer)

        contenders = {f"Thalweg tcp, {level}": (thalweg, ours(level)) for level in levels}
        near = bench.thalweg("shm")
        contenders["Thalweg shm, memory"] = (
            near,
            lambda: near.bench(
                "produce", metadata_bytes=size, events=count, storage="memory", durability="memory"
            ),
        )
        contenders["Kafka, acks=1, no fsync"] = (kafka, theirs)
        if redis:
            server = bench.redis()

            def streams():
                result = server.run("stream-produce", "s", count, size, 1000)
                server.delete("s")
                return result

            contenders["Redis streams, in memory"] = (server, streams)
        if zeromq:
            contenders["ZeroMQ, no log"] = (
                None,
                lambda: bench.zeromq("stream", "tcp", count, size),
            )
        return contenders

    return make


def consume_case(size: int, events: int, redis: bool):
    def make(bench: Bench):
        count = bench.count(events)
        thalweg, kafka = bench.thalweg(), bench.kafka()
        topic = kafka.fresh_name()
        kafka.create(topic)
        kafka.run("produce", topic, count, size, kafka.producer)
        kafka.keep()
        near = bench.thalweg("shm")
        contenders = {
            "Thalweg tcp, written": (
                thalweg,
                lambda: thalweg.bench(
                    "consume", metadata_bytes=size, events=count, durability="written"
                ),
            ),
            "Thalweg shm, memory": (
                near,
                lambda: near.bench(
                    "consume",
                    metadata_bytes=size,
                    events=count,
                    storage="memory",
                    durability="memory",
                ),
            ),
            "Kafka": (kafka, lambda: kafka.run("consume", topic, count, size, kafka.consumer)),
        }
        if redis:
            server = bench.redis()
            server.run("stream-produce", "s", count, size, 1000)
            contenders["Redis streams, in memory"] = (
                server,
                lambda: server.run("stream-consume", "s", count, size, 1000),
            )
        return contenders

    return make


def large_case(work: str):
    """Events of 10 MB of data, without metadata to speak of."""

    def make(bench: Bench):
        count, size = max(5, round(100 * bench.options.scale)), 10_000_000
        thalweg, kafka, redis = bench.thalweg(), bench.kafka(), bench.redis()
        given = {"metadata_bytes": 16, "data_bytes": size, "events": count}

        def ours(server, storage, level):
            return lambda: server.bench(work, **given, storage=storage, durability=level)

        near = bench.thalweg("shm")
        contenders = {
            "Thalweg tcp, memory": (thalweg, ours(thalweg, "memory", "memory")),
            "Thalweg tcp, written": (thalweg, ours(thalweg, "disk", "written")),
            "Thalweg shm, memory": (near, ours(near, "memory", "memory")),
        }
        if work == "produce":
            contenders["Thalweg tcp, synced"] = (thalweg, ours(thalweg, "disk", "synced"))

            def kafka_produces():
                topic = kafka.fresh_name()
                kafka.create(topic)
                return kafka.run("produce", topic, count, size, kafka.producer)

            def redis_produces():
                result = redis.run("stream-produce", "s", count, size, 4)
                redis.delete("s")
                return result

            contenders["Kafka, no fsync"] = (kafka, kafka_produces)
            contenders["Redis streams, in memory"] = (redis, redis_produces)
            contenders["ZeroMQ tcp, no log"] = (
                None,
                lambda: bench.zeromq("stream", "tcp", count, size),
            )
        else:
            topic = kafka.fresh_name()
            kafka.create(topic)
            kafka.run("produce", topic, count, size, kafka.producer)
            kafka.keep()
            redis.run("stream-produce", "s", count, size, 4)
            contenders["Kafka"] = (
                kafka,
                lambda: kafka.run("consume", topic, count, size, kafka.consumer),
            )
            contenders["Redis streams, in memory"] = (
                redis,
                lambda: redis.run("stream-consume", "s", count, size, 4),
            )
        return contenders

    return make


def latency_case(bench: Bench):
    count, size = bench.count(10_000), 128
    tcp, unix, near, redis, kafka = (
        bench.thalweg(),
        bench.thalweg("unix"),
        bench.thalweg("shm"),
        bench.redis(),
        bench.kafka(),
    )

    def ours(server, storage, level):
        return lambda: server.bench(
            "latency", metadata_bytes=size, events=count, storage=storage, durability=level
        )

    def redis_runs(work, is_unix):
        key = "k" + work

        def run():
            redis.delete(key)
            return redis.run(work, key, count, size, unix=is_unix)

        return run

    def kafka_runs():
        topic = kafka.fresh_name()
        kafka.create(topic)
        settings = [*kafka.quick, "--", "fetch.wait.max.ms=500", "fetch.min.bytes=1"]
        return kafka.run("latency", topic, max(100, count // 10), size, settings)

    return {
        "Thalweg tcp, written": (tcp, ours(tcp, "disk", "written")),
        "Thalweg unix, written": (unix, ours(unix, "disk", "written")),
        "Thalweg unix, memory": (unix, ours(unix, "memory", "memory")),
        "Thalweg shm, written": (near, ours(near, "disk", "written")),
        "Redis list, tcp": (redis, redis_runs("list-latency", False)),
        "Redis stream, tcp": (redis, redis_runs("stream-latency", False)),
        "Redis list, unix": (redis, redis_runs("list-latency", True)),
        "Redis stream, unix": (redis, redis_runs("stream-latency", True)),
        "Kafka": (kafka, kafka_runs),
        "ZeroMQ tcp, no server": (None, lambda: bench.zeromq("latency", "tcp", count, size)),
    }


def tail_case(bench: Bench):
    """A consumer that is there before the first event."""
    count, size = bench.count(1_000_000), 1000
    thalweg, near, kafka = bench.thalweg(), bench.thalweg("shm"), bench.kafka()

    def ours(server, storage, level):
        given = {"metadata_bytes": size, "events": count}
        return lambda: server.bench("pipeline", **given, storage=storage, durability=level)

    def theirs():
        topic = kafka.fresh_name()
        kafka.create(topic)
        settings = [*kafka.producer, "--", *kafka.consumer]
        return kafka.run("tail", topic, count, size, settings)

    return {
        "Thalweg tcp, memory": (thalweg, ours(thalweg, "memory", "memory")),
        "Thalweg tcp, written": (thalweg, ours(thalweg, "disk", "written")),
        "Thalweg shm, memory": (near, ours(near, "memory", "memory")),
        "Kafka, acks=1, no fsync": (kafka, theirs),
    }


LEVELS = ["memory", "written", "synced"]
CASES = {
    "produce-1k": ("Producing events of 1,000 B", produce_case(1000, 1_000_000, True, True, LEVELS)),
    "consume-1k": ("Consuming a history of events of 1,000 B", consume_case(1000, 1_000_000, True)),
    "tail-1k": ("Producing events of 1,000 B while another process consumes them", tail_case),
    "produce-256": ("Producing events of 256 B", produce_case(256, 4_000_000, False, False, LEVELS[:2])),
    "consume-256": ("Consuming a history of events of 256 B", consume_case(256, 4_000_000, False)),
    "produce-10m": ("Producing events of 10 MB", large_case("produce")),
    "consume-10m": ("Consuming a history of events of 10 MB", large_case("consume")),
    "latency": ("Latency of one event of 128 B at a time", latency_case),
    **SHARING,
    **PROGRAMS,
}


# By which limit a broadcast is judged, column by column.
SHARES = (
    ("share_of_stream_hot",),
    ("share_of_stream_cold", "share_of_copy_and_crc_cold"),
)


def spread(values: list[float]) -> dict:
    return {"median": statistics.median(values), "min": min(values), "max": max(values)}


def both_builds(options, stack: ExitStack, make) -> dict:
    """Of a case, what is Thalweg's, by two builds in turn."""
    builds = {"": options.thalweg, ", the other build": options.against}
    made = {suffix: make(Bench(options, stack, program)) for suffix, program in builds.items()}
    return {
        name + suffix: contenders[name]
        for name in made[""]
        if name.startswith("Thalweg")
        for suffix, contenders in made.items()
    }


def measure(contenders: dict, rounds: int) -> dict:
    """Every contender once a round; the first round is not counted. What a round
    wrote is removed between it and the next."""
    results: dict[str, dict[str, list[float]]] = {name: {} for name in contenders}
    for index in range(rounds + 1):
        for name, (server, run) in contenders.items():
            # What others left dirty is written now, not while this one is measured.
            os.sync()
            time.sleep(0.2)
            before = cpu_seconds(server.process.pid) if server else 0.0
            began = time.monotonic()
            result = run()
            took = time.monotonic() - began
            told_now = ", ".join(f"{key} {value:.4g}" for key, value in list(result.items())[:4])
            print(
                f"round {index}: {name}: {took:.1f} s: {told_now}", file=sys.stderr, flush=True
            )
            if server and "seconds" in result:
                used = cpu_seconds(server.process.pid) - before
                result["server_cpu_ns"] = used / result["events"] * 1e9
            if index > 0:
                for key, value in result.items():
                    results[name].setdefault(key, []).append(value)
        for server in {id(server): server for server, _ in contenders.values() if server}.values():
            server.clean()
    return {
        name: {key: spread(values) for key, values in keys.items()}
        for name, keys in results.items()
    }


def told(value: dict, scale: float, digits: int) -> str:
    median, least, most = (value[key] * scale for key in ("median", "min", "max"))
    return f"{median:.{digits}f} [{least:.{digits}f} to {most:.{digits}f}]"


def table(case: str, title: str, results: dict, output: Path) -> str:
    lines = [f"### {title}", ""]
    if case in ("latency", "request"):
        lines += ["| | p50, us | p99, us |", "| --- | --- | --- |"]
        for name, keys in results.items():
            lines.append(f"| {name} | {told(keys['p50_us'], 1, 1)} | {told(keys['p99_us'], 1, 1)} |")
        rows = [(name, keys["p50_us"]) for name, keys in results.items()]
        plots.bars(output / f"{case}.svg", title, "us, median", rows)
    elif case.startswith("blocked"):
        columns = ("blocked_us", "p50_us", "max_us", "end_us")
        lines.append("| | blocked per event, us | median event | longest | at the end, once |")
        lines.append("| --- | --- | --- | --- | --- |")
        for name, keys in results.items():
            cells = " | ".join(told(keys[column], 1, 1) for column in columns)
            lines.append(f"| {name} | {cells} |")
        rows = [(name, keys["blocked_us"]) for name, keys in results.items()]
        plots.bars(output / f"{case}.svg", title, "us per event", rows)
    elif case == "broadcast":
        lines += ["| | MB/s, all consumers together | of one stream in cache | of one through memory, or copied |"]
        lines += ["| --- | --- | --- | --- |"]
        for name, keys in results.items():
            shares = [
                next((told(keys[share], 100, 0) + " %" for share in known if share in keys), "-")
                for known in SHARES
            ]
            lines.append(f"| {name} | {told(keys['mb_per_s'], 1, 0)} | {' | '.join(shares)} |")
        rows = [(name, keys["mb_per_s"]) for name, keys in results.items()]
        plots.bars(output / f"{case}.svg", title, "MB/s", rows)
    elif case.startswith(("share", "steady")):
        lines += ["| | thousand events/s |", "| --- | --- |"]
        for name, keys in results.items():
            lines.append(f"| {name} | {told(keys['events_per_s'], 1e-3, 2)} |")
        rows = [
            (name, {key: value * 1e-3 for key, value in keys["events_per_s"].items()})
            for name, keys in results.items()
        ]
        plots.bars(output / f"{case}.svg", title, "thousand events/s", rows)
    elif case.endswith("10m"):
        lines += ["| | MB/s |", "| --- | --- |"]
        for name, keys in results.items():
            lines.append(f"| {name} | {told(keys['events_per_s'], 10, 0)} |")
        rows = [
            (name, {key: value * 10 for key, value in keys["events_per_s"].items()})
            for name, keys in results.items()
        ]
        plots.bars(output / f"{case}.svg", title, "MB/s", rows)
    else:
        lines += ["| | million events/s |", "| --- | --- |"]
        for name, keys in results.items():
            lines.append(f"| {name} | {told(keys['events_per_s'], 1e-6, 2)} |")
        rows = [
            (name, {key: value * 1e-6 for key, value in keys["events_per_s"].items()})
            for name, keys in results.items()
        ]
        plots.bars(output / f"{case}.svg", title, "million events/s", rows)
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description="Measures Thalweg and its peers in turn.")
    parser.add_argument("--thalweg", type=Path, required=True)
    parser.add_argument("--python", type=Path, required=True, help="one that has thalweg")
    parser.add_argument("--build", type=Path, required=True)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--scale", type=float, default=1.0, help="factor on the counts of events")
    parser.add_argument("--against", type=Path, help="another build of thalweg, in place of the peers")
    parser.add_argument("cases", nargs="*", metavar="CASE", help=", ".join(CASES))
    options = parser.parse_args()
    # What was started ends with this program, also when it is told to end.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    for case in options.cases:
        if case not in CASES:
            parser.error(f"{case}: no such case; there are {', '.join(CASES)}")
    for name in ("thalweg", "build", "output", *(["against"] if options.against else [])):
        setattr(options, name, getattr(options, name).resolve())
    # Not resolved: it is by its path that it finds its packages.
    options.python = options.python.absolute()
    options.output.mkdir(parents=True, exist_ok=True)
    if len(os.sched_getaffinity(0)) <= max(SERVER_CORE, CLIENT_CORE):
        sys.exit("bench-peers: two cores are needed, one for each side")
    kept = options.output / ("builds.json" if options.against else "peers.json")
    everything = json.loads(kept.read_text()) if kept.exists() else {}
    version = subprocess.run(
        [str(options.thalweg), "--version"], check=True, capture_output=True, text=True
    )
    for case in options.cases or CASES:
        title, make = CASES[case]
        with ExitStack() as stack:
            if options.against:
                contenders = both_builds(options, stack, make)
            else:
                contenders = make(Bench(options, stack))
            results = measure(contenders, options.rounds)
        everything[case] = {
            "title": title,
            "version": version.stdout.strip(),
            "commit": os.environ.get("THALWEG_COMMIT", "unknown"),
            "rounds": options.rounds,
            "scale": options.scale,
            "results": results,
        }
        lines = (f"{json.dumps(name)}: {json.dumps(value)}" for name, value in everything.items())
        kept.write_text("{\n" + ",\n".join(lines) + "\n}\n")
        print(table(case, title, results, options.output), flush=True)


if __name__ == "__main__":
    main()
