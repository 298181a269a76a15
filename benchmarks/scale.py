"""What partitions, topics, clients and servers cost, at three sizes each: benchmarks/scale.py --thalweg COMMAND [PART ...]

Parts: partitions, clients, servers, table, idle, start, quota, spread. Samples go to a file of JSON, to which further runs add;
`benchmarks/scale_model.py` makes the page of them. Needs root, for a network namespace of its own (its loopback interface counts what
servers say to each other and to clients) and for control groups of version 1; and the package `thalweg` in the Python that runs it. Memory and processor time
are the kernel's figures of each process, so that other programs on the machine disturb them little.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import json
import os
import platform
import random
import shutil
import signal
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import thalweg

GROUPS = Path("/sys/fs/cgroup/cpu")
QUOTA_PERIOD_US = 10_000
IN_OPEN = 0x20
READY_S_MAX = 300.0
INSIDE = "THALWEG_SCALE_NAMESPACE"

Sample = dict[str, Any]


class Options(argparse.Namespace):
    """What the command line says."""

    thalweg: str
    output: Path
    rounds: int
    window: float
    quota: float
    gigabytes: float
    memory: Path
    kinds: str
    parts: list[str]


# --- What the kernel says ---------------------------------------------------------------------------------------------


def running_ns(process: int) -> int:
    """Processor time of the threads that a process has now."""
    total = 0
    for task in Path(f"/proc/{process}/task").iterdir():
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            total += int((task / "schedstat").read_text().split()[0])
    return total


def wakeups(process: int) -> int:
    """How often its threads have waited."""
    total = 0
    for task in Path(f"/proc/{process}/task").iterdir():
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            for line in (task / "status").read_text().splitlines():
                if line.startswith("voluntary_ctxt_switches:"):
                    total += int(line.split()[1])
    return total


def processor_s(process: int) -> float:
    """Processor time of a process, with threads that have ended."""
    fields = Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def memory_bytes(process: int) -> dict[str, int]:
    """Memory of a process: all that is resident, and what no file backs."""
    lines = Path(f"/proc/{process}/status").read_text().splitlines()
    found = dict(line.split(":", 1) for line in lines)
    kinds = {"rss": "VmRSS", "anon": "RssAnon"}
    return {name: int(found[kind].split()[0]) << 10 for name, kind in kinds.items()}


def loopback() -> dict[str, int]:
    """Bytes and packets of the loopback interface, headers of IP and TCP counted."""
    for line in Path("/proc/net/dev").read_text().splitlines():
        name, _, counts = line.partition(":")
        if name.strip() == "lo":
            fields = counts.split()
            return {"bytes": int(fields[8]), "packets": int(fields[9])}
    raise RuntimeError("there is no loopback interface")


def disk_use(path: Path) -> dict[str, int]:
    """What lies below a directory: bytes of files, blocks of the file system, entries."""
    size = blocks = entries = 0
    for directory, _, files in os.walk(path):
        for name in [".", *files]:
            with contextlib.suppress(FileNotFoundError):
                found = os.lstat(os.path.join(directory, name))
                size += 0 if name == "." else found.st_size
                blocks += found.st_blocks * 512
                entries += 1
    return {"bytes": size, "blocks": blocks, "entries": entries}


class Opens:
    """Counts the files of a directory that are opened."""

    def __init__(self, directory: Path) -> None:
        self.libc = ctypes.CDLL(None, use_errno=True)
        self.descriptor = self.libc.inotify_init1(os.O_NONBLOCK)
        if self.descriptor < 0 or self.libc.inotify_add_watch(self.descriptor, bytes(directory), IN_OPEN) < 0:
            raise OSError(ctypes.get_errno(), "inotify")

    def count(self) -> int:
        """Those since the last call."""
        found = 0
        with contextlib.suppress(BlockingIOError):
            while data := os.read(self.descriptor, 1 << 16):
                at = 0
                while at < len(data):
                    _, _, _, length = struct.unpack_from("iIII", data, at)
                    name = data[at + 16 : at + 16 + length].rstrip(b"\0")
                    found += name.endswith(b".json")
                    at += 16 + length
        return found

    def close(self) -> None:
        os.close(self.descriptor)


# --- Servers ----------------------------------------------------------------------------------------------------------


class Server:
    """One `thalweg serve`, which has begun to start when this returns."""

    def __init__(self, options: Options, home: Path, name: str, *arguments: str) -> None:
        self.home, self.data, self.group_file = home, home / name, home / f"{name}.json"
        self.program, self.arguments = options.thalweg, arguments
        self.launch()

    def launch(self) -> None:
        self.began = time.monotonic()
        files = [str(self.data), "--group-file", str(self.group_file)]
        self.command = [self.program, "serve", *files, "--json", *self.arguments]
        log = (self.home / f"{self.data.name}.log").open("ab")
        self.process = subprocess.Popen(self.command, stdout=subprocess.PIPE, stderr=log, cwd=self.home)
        log.close()

    def move(self, home: Path) -> None:
        """Its data directory lies elsewhere from now on. It has ended."""
        shutil.move(self.data, home / self.data.name)
        self.home, self.data, self.group_file = home, home / self.data.name, home / self.group_file.name

    def wait(self) -> None:
        """Until it says that it is ready; how long that took, and what processor time."""
        assert self.process.stdout is not None
        if not self.process.stdout.readline():
            raise RuntimeError((self.home / f"{self.data.name}.log").read_text()[-2000:])
        self.ready_s = time.monotonic() - self.began
        self.ready_cpu_s = processor_s(self.process.pid)

    @property
    def pid(self) -> int:
        return self.process.pid

    def end(self, how: int = signal.SIGTERM) -> None:
        if self.process.poll() is None:
            self.process.send_signal(how)
            self.process.wait(timeout=READY_S_MAX)
        if self.process.stdout is not None:
            self.process.stdout.close()

    def descriptors(self) -> dict[str, int]:
        """What it has open, and of that sockets."""
        found = []
        for entry in Path(f"/proc/{self.pid}/fd").iterdir():
            with contextlib.suppress(FileNotFoundError):
                found.append(os.readlink(entry))
        return {"descriptors": len(found), "sockets": sum(name.startswith("socket:") for name in found)}


@contextlib.contextmanager
def scratch(where: Path | None = None) -> Iterator[Path]:
    home = Path(tempfile.mkdtemp(prefix="thalweg-scale-", dir=where))
    try:
        yield home
    finally:
        shutil.rmtree(home, ignore_errors=True)


@contextlib.contextmanager
def alone(options: Options, *arguments: str) -> Iterator[Server]:
    """A server without a cluster, on a new data directory in memory."""
    with scratch(options.memory) as home:
        server = Server(options, home, "data", "--listen", "tcp://127.0.0.1:0", *arguments)
        try:
            server.wait()
            yield server
        finally:
            server.end()


@contextlib.contextmanager
def cluster(options: Options, size: int, where: Path | None = None) -> Iterator[list[Server]]:
    """Servers that act as one, on this host; three vote, or one where there are fewer."""
    voters = 3 if size >= 3 else 1
    with scratch(where) as home:
        common = ["--cluster", str(home / "shared"), "--size", str(size), "--voters", str(voters)]
        common += ["--cluster-listen", "tls://127.0.0.1:0", "--listen", "tcp://127.0.0.1:0"]
        servers: list[Server] = []
        try:
            for rank in range(size):
                servers.append(Server(options, home, f"data-{rank}", "--rank", str(rank), *common))
            for server in servers:
                server.wait()
            yield servers
        finally:
            for server in servers:
                server.process.send_signal(signal.SIGTERM)
            for server in servers:
                server.end()


def driver(server: Server) -> thalweg.Driver:
    return thalweg.Driver(server.group_file, connect_timeout=60)


def watch(servers: list[Server], seconds: float) -> dict[str, Any]:
    """What servers do while nobody asks them: of a core, and how often they wake up, each; what passes between them."""
    before = [(running_ns(server.pid), wakeups(server.pid)) for server in servers]
    passed, began = loopback(), time.monotonic()
    time.sleep(seconds)
    took = time.monotonic() - began
    after = loopback()
    now = [(running_ns(server.pid), wakeups(server.pid)) for server in servers]
    return {
        "seconds": round(took, 2),
        "cpu": [round((b[0] - a[0]) / 1e9 / took, 6) for a, b in zip(before, now, strict=True)],
        "wakeups_per_s": [round((b[1] - a[1]) / took, 2) for a, b in zip(before, now, strict=True)],
        "bytes_per_s": round((after["bytes"] - passed["bytes"]) / took, 1),
        "packets_per_s": round((after["packets"] - passed["packets"]) / took, 2),
    }


def make_topics(way: thalweg.Driver, names: list[str], partitions: int, **more: Any) -> float:
    """Makes topics, eight at a time; how many a second."""
    began = time.monotonic()

    def make(name: str) -> None:
        way.create_topic(name, partitions=partitions, **more)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(make, names))
    return len(names) / (time.monotonic() - began)


# --- Parts ------------------------------------------------------------------------------------------------------------


def starts(server: Server, count: int, how: int) -> list[dict[str, float]]:
    """Ends a server and starts it again, some times."""
    done = []
    for _ in range(count):
        server.end(how)
        server.launch()
        server.wait()
        done.append({"ready_s": round(server.ready_s, 3), "ready_cpu_s": round(server.ready_cpu_s, 2)})
    return done


def partitions(options: Options, add: Callable[[Sample], None]) -> None:
    """A server with partitions that nobody uses, in topics of one partition and of ten."""
    for of_each in (1, 10):
        for count in (1_000, 3_000, 10_000):
            with alone(options) as server, scratch() as disk:
                empty = memory_bytes(server.pid)
                with driver(server) as way:
                    rate = make_topics(way, [f"t.{index}" for index in range(count // of_each)], of_each)
                made = memory_bytes(server.pid)
                in_memory = starts(server, 2, signal.SIGTERM)
                started = memory_bytes(server.pid)
                idle_started = watch([server], options.window)
                server.end()
                server.move(disk)
                server.launch()
                server.wait()
                use, table_use = disk_use(server.data), disk_use(server.data / "internal")
                clean = starts(server, 2, signal.SIGTERM)
                killed = starts(server, 1, signal.SIGKILL)
                add({
                    "partitions": count, "topics": count // of_each, "topics_per_s_in_memory": round(rate, 1), "empty": empty,
                    "made": made, "started": started, "idle_started": idle_started, "disk": use, "table_disk": table_use,
                    "starts_in_memory": in_memory, "starts": clean, "starts_killed": killed, **server.descriptors(),
                })


def hold_clients(argument: str) -> None:
    """A process of clients: makes them, says what they cost it, and keeps them until its input ends."""
    asked = json.loads(argument)
    before, drivers, kept = memory_bytes(os.getpid()), [], []
    for index in range(asked["count"]):
        way = thalweg.Driver(asked["group_file"], connect_timeout=60)
        drivers.append(way)
        if asked["kind"] == "connected":
            continue
        # Each used client pulls the one event that there is, so that none of them has events of others waiting.
        topic = way.open_topic("one" if asked["kind"] == "used" else "topic")
        name = f"c-{asked['first'] + index}"
        if asked["kind"] == "used":
            producer = way.open_topic("topic").producer()
            producer.push(b"x" * 1_000)
            producer.flush()
            kept.append(producer)
        consumer = topic.consumer(name, start="beginning" if asked["kind"] == "used" else "latest")
        if asked["kind"] == "used":
            assert consumer.pull(timeout=60) is not None
        kept.append(consumer)
    after = memory_bytes(os.getpid())
    threads = len(list(Path("/proc/self/task").iterdir()))
    print(json.dumps({"anon": after["anon"] - before["anon"], "threads": threads}), flush=True)
    sys.stdin.read()
    os._exit(0)


def clients(options: Options, add: Callable[[Sample], None]) -> None:
    """Clients that are connected by TCP, that wait for events as well, or that have moved one event each way."""
    for kind in options.kinds.split(","):
        for count in (100, 300, 1_000):
            with alone(options, "--no-unix-socket") as server:
                with driver(server) as way:
                    way.create_topic("topic", serializer="raw", durability="written")
                    one = way.create_topic("one", serializer="raw", durability="written").producer()
                    one.push(b"x" * 1_000)
                    one.flush()
                    one.close()
                before = memory_bytes(server.pid)
                began_cpu = running_ns(server.pid)
                each, held = 50, []
                try:
                    for first in range(0, count, each):
                        asked = {"group_file": str(server.group_file), "count": each, "kind": kind, "first": first}
                        held.append(subprocess.Popen([sys.executable, __file__, "--hold-clients", json.dumps(asked)],
                                                     stdin=subprocess.PIPE, stdout=subprocess.PIPE))  # fmt: skip
                        line = held[-1].stdout.readline()  # type: ignore[union-attr]
                        last = json.loads(line)
                    connected_cpu = (running_ns(server.pid) - began_cpu) / 1e9
                    time.sleep(2)
                    after = memory_bytes(server.pid)
                    client_cpu = [processor_s(one.pid) for one in held]
                    idle = watch([server], max(options.window, 20.0))
                    spent = sum(processor_s(one.pid) for one in held) - sum(client_cpu)
                    add({
                        "kind": kind, "clients": count, "before": before, "after": after, "idle": idle,
                        "connect_cpu_s": round(connected_cpu, 3), "client_anon": last["anon"] / each,
                        "client_threads": last["threads"] / each, "client_cpu": round(spent / idle["seconds"] / count, 6),
                        **server.descriptors(),
                    })  # fmt: skip
                finally:
                    for one in held:
                        assert one.stdin is not None and one.stdout is not None
                        one.stdin.close()
                    for one in held:
                        one.wait(timeout=60)
                        one.stdout.close()  # type: ignore[union-attr]


def servers(options: Options, add: Callable[[Sample], None]) -> None:
    """Servers of a cluster that nobody uses, and what the creation of a topic costs them."""
    for size in (1, 3, 5, 8):
        with cluster(options, size) as found:
            time.sleep(3)
            memory = [memory_bytes(server.pid) for server in found]
            descriptors = [server.descriptors() for server in found]
            opens = Opens(found[0].home / "shared")
            idle = watch(found, options.window)
            opened = opens.count()
            opens.close()
            took = []
            # By the unix socket: what passes the loopback interface is between the servers.
            with driver(found[0]) as way:
                way.create_topic("first")
                time.sleep(1)
                rows = [running_ns(server.pid) for server in found]
                passed, began = loopback(), time.monotonic()
                for index in range(100):
                    asked = time.monotonic()
                    way.create_topic(f"t.{index}", beside="first")
                    took.append(time.monotonic() - asked)
                lasted, after = time.monotonic() - began, loopback()
                spent = [b - a for a, b in zip(rows, (running_ns(server.pid) for server in found), strict=True)]
            took.sort()
            add({
                "servers": size, "memory": memory, "descriptors": descriptors, "idle": idle,
                "opens_per_s": round(opened / idle["seconds"], 2),
                "create_ms": {"p50": round(took[50] * 1e3, 2), "p90": round(took[90] * 1e3, 2), "max": round(took[-1] * 1e3, 2)},
                "create_bytes": round((after["bytes"] - passed["bytes"] - idle["bytes_per_s"] * lasted) / 100, 1),
                "create_packets": round((after["packets"] - passed["packets"] - idle["packets_per_s"] * lasted) / 100, 2),
                "create_cpu_ms": [round((ns / 1e9 - cpu * lasted) * 10, 4) for ns, cpu in zip(spent, idle["cpu"], strict=True)],
                "ready_cpu_s": [server.ready_cpu_s for server in found],
            })  # fmt: skip


def home_of(found: list[Server]) -> int:
    """Which server has the only partitions that there are."""
    return max(range(len(found)), key=lambda place: sum(1 for _ in (found[place].data / "partitions").glob("*")))


def table(options: Options, add: Callable[[Sample], None]) -> None:
    """A table of topics that are all on one server: what the others have of it is their copy."""
    for of_each in (1, 10):
        for count in (1_000, 3_000, 10_000):
            topics = count // of_each
            with cluster(options, 4, options.memory) as found:
                with driver(found[0]) as way:
                    way.create_topic("first")
                    place = home_of(found)
                    others = [server for index, server in enumerate(found) if index != place]
                    before = [memory_bytes(server.pid) for server in others]
                    disks = [disk_use(server.data) for server in others]
                    spent = [running_ns(server.pid) for server in found]
                    quiet = watch(found, 5.0)
                    passed, began = loopback(), time.monotonic()
                    # With the first one as many as asked: a table has 10,000 topics at most.
                    rate = make_topics(way, [f"t.{index}" for index in range(1, topics)], of_each, beside="first")
                lasted, after = time.monotonic() - began, loopback()
                spent = [b - a for a, b in zip(spent, (running_ns(server.pid) for server in found), strict=True)]
                grown = [memory_bytes(server.pid) for server in others]
                idle = watch(found, options.window)
                disks_after = [disk_use(server.data) for server in others]
                quorum = [disk_use(server.data / "quorum") if (server.data / "quorum").exists() else None for server in others]
                # A follower that starts again: what the table costs it.
                last = others[-1]
                waiting = loopback()
                last.end()
                last.launch()
                last.wait()
                restarted = loopback()
                time.sleep(1)
                add({
                    "partitions": count, "topics": topics, "topics_per_s": round(rate, 1), "home": place,
                    "before": before, "after": grown, "restarted": memory_bytes(last.pid),
                    "disk": [b["bytes"] - a["bytes"] for a, b in zip(disks, disks_after, strict=True)], "quorum": quorum,
                    "cpu_ms_per_topic": [round(ns / 1e6 / topics, 4) for ns in spent],
                    "bytes_per_topic": round((after["bytes"] - passed["bytes"] - quiet["bytes_per_s"] * lasted) / topics, 1),
                    "idle": idle, "restart_s": round(last.ready_s, 3), "restart_cpu_s": last.ready_cpu_s,
                    "restart_bytes": restarted["bytes"] - waiting["bytes"],
                })  # fmt: skip


def idle(options: Options, add: Callable[[Sample], None]) -> None:
    """Ten thousand partitions that nobody uses, spread over four servers."""
    with cluster(options, 4, options.memory) as found:
        with driver(found[0]) as way:
            make_topics(way, [f"t.{index}" for index in range(1_000)], 10)
        time.sleep(5)
        on_each = [sum(1 for _ in (server.data / "partitions").glob("*")) for server in found]
        for _ in range(max(options.rounds, 3)):
            add({"partitions": on_each, "idle": watch(found, 30.0), "memory": [memory_bytes(server.pid) for server in found]})


def start(options: Options, add: Callable[[Sample], None]) -> None:
    """How long a server takes to start with ten thousand partitions that have events, after an end and after a death."""
    topics, of_each = 1_000, 10
    payload = random.Random(1).randbytes(int(options.gigabytes * 1e9 / (topics * of_each)))
    with alone(options) as server, scratch() as disk:
        with driver(server) as way:
            # Events whose bytes are metadata: their partitions have one file open each, and those with data two.
            make_topics(way, [f"t.{index}" for index in range(topics)], of_each, serializer="raw")
        in_memory = starts(server, options.rounds, signal.SIGTERM)
        server.end()
        server.move(disk)
        server.launch()
        server.wait()
        empty = starts(server, options.rounds, signal.SIGTERM)
        with driver(server) as way:

            def fill(index: int) -> None:
                with way.open_topic(f"t.{index}").producer() as producer:
                    for _ in range(of_each):
                        producer.push(payload)

            with ThreadPoolExecutor(8) as pool:
                list(pool.map(fill, range(topics)))
            written = server.descriptors()
        clean = starts(server, options.rounds, signal.SIGTERM)
        idle_after = watch([server], options.window)
        killed = starts(server, options.rounds, signal.SIGKILL)
        # Nothing has its bytes in the page cache that was written since: it is left as it is.
        add({"partitions": topics * of_each, "disk": disk_use(server.data), "descriptors_written": written["descriptors"], "in_memory": in_memory, "empty": empty, "clean": clean, "killed": killed,
             "memory": memory_bytes(server.pid), "idle": idle_after, **server.descriptors()})  # fmt: skip


class Held:
    """A control group that gives a process a share of a processor."""

    def __init__(self, process: int, quota: float) -> None:
        self.path = GROUPS / f"thalweg-scale-{os.getpid()}-{process}"
        self.path.mkdir()
        (self.path / "cpu.cfs_period_us").write_text(str(QUOTA_PERIOD_US))
        (self.path / "cpu.cfs_quota_us").write_text(str(int(QUOTA_PERIOD_US * quota)))
        (self.path / "cgroup.procs").write_text(str(process))

    def counts(self) -> tuple[int, int]:
        """Periods, and those in which it wanted more than it had."""
        lines = (self.path / "cpu.stat").read_text().split()
        stat = dict(zip(lines[::2], map(int, lines[1::2]), strict=False))
        return stat["nr_periods"], stat["nr_throttled"]


def work(argument: str) -> None:
    """One producer or consumer of a topic, for some seconds: how many events it moved in the time that counts."""
    asked = json.loads(argument)
    way = thalweg.Driver(asked["group_file"], connect_timeout=60)
    topic = way.open_topic(asked["topic"])
    moved, counted = 0, [0, 0]
    begins, ends = asked["begins"], asked["ends"]
    payload = [b"x" * asked["bytes"]] * 1_000

    def count(events: int) -> bool:
        nonlocal moved
        moved += events
        now = time.time()
        if now < begins:
            counted[0] = moved
        elif now < ends:
            counted[1] = moved
        return now < ends + 0.5

    if asked["role"] == "produce":
        producer = topic.producer()
        pushed = producer.push_many(payload)
        del pushed
        while count(len(payload)):
            producer.push_many(payload)
    else:
        consumer = topic.consumer(asked["name"], start="latest", partitions=asked["partitions"])
        while count(len(consumer.pull_batch(10_000, timeout=0.2))):
            pass
    print(json.dumps({"events": max(0, counted[1] - counted[0]), "cpu_s": processor_s(os.getpid())}), flush=True)
    os._exit(0)


def topics_of_each(way: thalweg.Driver, found: list[Server], settings: dict[str, Any]) -> list[tuple[Server, str, list[int] | None]]:
    """A topic on each server: the server, the topic, and which partitions its consumer reads."""
    topics: dict[int, str] = {}
    for index in range(200):
        name = f"t.{index}"
        before = [sum(1 for _ in (server.data / "partitions").glob("*")) for server in found]
        way.create_topic(name, **settings)
        after = [sum(1 for _ in (server.data / "partitions").glob("*")) for server in found]
        place = next(place for place in range(len(found)) if after[place] > before[place])
        topics.setdefault(place, name)
        if len(topics) == len(found):
            break
    return [(found[place], name, None) for place, name in topics.items()]


def one_topic(way: thalweg.Driver, found: list[Server], settings: dict[str, Any]) -> list[tuple[Server, str, list[int] | None]]:
    """One topic with a partition on each server, and a producer and a consumer for each."""
    way.create_topic("t", partitions=len(found), spread=True, **settings)
    return [(server, "t", [index]) for index, server in enumerate(found)]


def quota(options: Options, add: Callable[[Sample], None]) -> None:
    """One, two and four servers with a share of a processor each, each with a producer and a consumer of a topic of its own."""
    under_quota(options, add, topics_of_each)


def spread(options: Options, add: Callable[[Sample], None]) -> None:
    """The same with one topic, which has a partition on each server."""
    under_quota(options, add, one_topic)


def under_quota(options: Options, add: Callable[[Sample], None], make: Callable[..., list[tuple[Server, str, list[int] | None]]]) -> None:
    seconds, event_bytes = 6.0, 1_000
    for _ in range(options.rounds):
        for size in (1, 2, 4):
            with cluster(options, size, options.memory) as found:
                with driver(found[0]) as way:
                    settings = {"serializer": "raw", "durability": "written", "retention": {"bytes": "64MiB"}}
                    topics = make(way, found, settings)
                held = [Held(server.pid, options.quota) for server in found]
                try:
                    time.sleep(1)
                    begins = time.time() + 2.5
                    workers = []
                    for server, name, partitions_read in topics:
                        for role in ("produce", "consume"):
                            asked = {"group_file": str(server.group_file), "topic": name, "role": role, "bytes": event_bytes,
                                     "name": f"reader-{server.pid}", "partitions": partitions_read, "begins": begins, "ends": begins + seconds}  # fmt: skip
                            workers.append((role, subprocess.Popen([sys.executable, __file__, "--work", json.dumps(asked)],
                                                                   stdout=subprocess.PIPE)))  # fmt: skip
                    time.sleep(max(0.0, begins - time.time()))
                    counts = [one.counts() for one in held]
                    cpu = [running_ns(server.pid) for server in found]
                    time.sleep(seconds)
                    counts_after = [one.counts() for one in held]
                    cpu_after = [running_ns(server.pid) for server in found]
                    moved = {"produce": 0, "consume": 0}
                    client_cpu = 0.0
                    for role, worker in workers:
                        said = json.loads(worker.communicate(timeout=60)[0])
                        moved[role] += said["events"]
                        client_cpu += said["cpu_s"]
                finally:
                    for server in found:
                        server.process.send_signal(signal.SIGTERM)
                    for server in found:
                        server.end()
                    for one in held:
                        one.path.rmdir()
                add({
                    "servers": size, "quota": options.quota,
                    "produced_per_s": moved["produce"] / seconds, "consumed_per_s": moved["consume"] / seconds,
                    "throttled": [round((b[1] - a[1]) / max(b[0] - a[0], 1), 3) for a, b in zip(counts, counts_after, strict=True)],
                    "cpu": [round((b - a) / 1e9 / seconds, 3) for a, b in zip(cpu, cpu_after, strict=True)],
                    "clients_cpu_s": round(client_cpu, 2),
                })  # fmt: skip


PARTS: dict[str, Callable[[Options, Callable[[Sample], None]], None]] = {
    "partitions": partitions, "clients": clients, "servers": servers, "table": table, "idle": idle, "start": start, "quota": quota, "spread": spread,
}  # fmt: skip
ONCE = ("idle", "start", "quota", "spread")


def as_text(document: dict[str, Any]) -> str:
    """JSON with a sample a line."""
    head = {key: value for key, value in document.items() if key != "samples"}
    samples = ",\n".join(json.dumps(sample) for sample in document["samples"])
    return json.dumps(head, indent=1).removesuffix("\n}") + f',\n "samples": [\n{samples}\n]}}\n'


def measure(options: Options) -> None:
    """Runs the parts, and writes each sample as it comes."""
    document: dict[str, Any] = {"samples": []}
    if options.output.exists():
        document = json.loads(options.output.read_text())
    document["what"] = "benchmarks/scale.py: what partitions, topics, clients and servers cost"
    document["machine"] = {"processors": os.cpu_count(), "kernel": platform.release()}
    for part in options.parts:
        for round_ in range(1 if part in ONCE else options.rounds):

            def add(sample: Sample, part: str = part, round_: int = round_) -> None:
                load = [round(value, 1) for value in os.getloadavg()[:1]][0]
                when = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
                whole = {"part": part, "round": round_, "time": when, "load": load, **options.build, **sample}
                document["samples"].append(whole)
                options.output.write_text(as_text(document))
                print(json.dumps(whole), flush=True)

            PARTS[part](options, add)


def stop(*_: object) -> None:
    raise SystemExit("scale: it was ended")


def enter_namespace() -> None:
    """Goes on in a network namespace of its own, whose loopback interface nobody else uses."""
    if os.environ.get(INSIDE) is None:
        os.environ[INSIDE] = "yes"
        os.execvp("unshare", ["unshare", "-n", "--", sys.executable, *sys.argv])
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--thalweg", required=True, help="the command")
    parser.add_argument("--output", type=Path, required=True, help="the file of samples")
    parser.add_argument("--commit", default=os.environ.get("THALWEG_COMMIT", "unknown"))
    parser.add_argument("--profile", default="release", help="how the command was built, for the record")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--window", type=float, default=10.0, help="seconds for which an idle server is watched")
    parser.add_argument("--quota", type=float, default=0.25, help="of a processor, for each server of the part quota")
    parser.add_argument("--gigabytes", type=float, default=3.0, help="of events, in the part start")
    parser.add_argument("--memory", type=Path, default=Path("/dev/shm"), help="where directories lie whose disk is not measured")
    parser.add_argument("--kinds", default="connected,waiting,used", help="of clients, in the part clients")
    parser.add_argument("parts", nargs="*", metavar="PART", help=", ".join(PARTS))
    options = parser.parse_args(namespace=Options())
    options.thalweg = str(Path(options.thalweg).resolve())
    options.output = options.output.resolve()
    options.build = {"commit": options.commit, "profile": options.profile}
    options.parts = options.parts or list(PARTS)
    if unknown := set(options.parts) - set(PARTS):
        parser.error(f"no part is called {', '.join(sorted(unknown))}")
    if os.geteuid() != 0 or shutil.which("unshare") is None or shutil.which("ip") is None:
        print("scale: it needs root, unshare and ip", file=sys.stderr)
        return 2
    enter_namespace()
    signal.signal(signal.SIGTERM, stop)
    measure(options)
    return 0


if __name__ == "__main__":
    if sys.argv[1:2] == ["--hold-clients"]:
        hold_clients(sys.argv[2])
    elif sys.argv[1:2] == ["--work"]:
        work(sys.argv[2])
    else:
        sys.exit(main())
