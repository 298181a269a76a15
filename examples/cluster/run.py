"""Three servers that act as one, of which each is killed, one is added and one is taken out.

    python run.py OUTPUT_DIRECTORY

starts three servers of two shards each, then the pipeline of examples/demo and a task farm over them. While these
work, each server is killed with SIGKILL and started again, one after the other, so that the one that leads the
cluster's table is among them; a fourth server joins; and the third is drained, ended and removed. At the end `thalweg
audit` compares the producers' journals with what is stored, and the farm's results are counted.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import thalweg

HERE = Path(__file__).parent
PIPELINE = HERE.parent / "demo"
ROWS = "18,27,36,45"
WORKERS = 3
WATCHDOG_S = 170
"""The whole run ends in an error after this long, whatever hangs."""


class Server:
    """One server of the cluster: `thalweg serve --cluster` on a data directory of its own."""

    def __init__(self, scratch: Path, rank: int, size: int) -> None:
        self.rank = rank
        self.command = [
            thalweg.executable(), "serve", str(scratch / "data-{rank}"), "--group-file", str(scratch / "thalweg.json"),
            "--cluster", str(scratch / "shared"), "--rank", str(rank), "--size", str(size), "--shards", "2",
            "--cluster-listen", "tls://127.0.0.1:0",
        ]
        self.launch()

    def launch(self) -> None:
        self.process = subprocess.Popen(self.command, stdout=subprocess.PIPE, text=True)

    def wait_until_ready(self) -> None:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"server {self.rank} ended with status {self.process.wait()}")

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait(timeout=30)


class Cluster:
    """The servers, and the commands that an operator gives them."""

    def __init__(self, scratch: Path) -> None:
        self.scratch = scratch
        self.group_file = scratch / "thalweg.json"
        self.servers = [Server(scratch, rank, 3) for rank in range(3)]
        for server in self.servers:
            server.wait_until_ready()

    def command(self, *arguments: str) -> str:
        command = [thalweg.executable(), *arguments, "--group-file", str(self.group_file)]
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        if done.returncode != 0:
            raise RuntimeError(f"{' '.join(arguments)}: {done.stderr.strip()}")
        return done.stdout

    def nodes(self) -> list[dict[str, object]]:
        return [json.loads(line) for line in self.command("nodes", "list", "--json").splitlines()]

    def nodes_of(self, rank: int) -> list[str]:
        return [str(node["node"]) for node in self.nodes() if node["labels"]["rank"] == str(rank)]  # type: ignore[index]

    def kill_each(self, until: Callable[[float], None]) -> list[float]:
        """Kills and starts again each server, as the work goes on; gives how long the table took to answer behind each kill."""
        took = []
        for place, server in enumerate(self.servers):
            until(0.1 * (1 + place))
            server.kill()
            began = time.time()
            # It is answered when the voters that are left have decided.
            self.nodes()
            took.append(time.time() - began)
            server.launch()
            server.wait_until_ready()
            print(f"server {server.rank}: killed and started again; the table answered {took[-1]:.2f} s behind the kill", flush=True)
        return took

    def add(self) -> None:
        server = Server(self.scratch, 3, 4)
        server.wait_until_ready()
        self.servers.append(server)
        print(f"server 3: has joined, with nodes {' and '.join(self.nodes_of(3))}", flush=True)

    def take_out(self, rank: int, until: Callable[[float], None]) -> list[float]:
        """Moves all topics of a server to the others, ends it when the work has gone on, and removes it; gives how long each topic paused."""
        nodes = self.nodes_of(rank)
        said = self.command("nodes", "drain", *nodes, "--json").splitlines()
        paused = [moved["paused_ms"] for moved in map(json.loads, said) if "paused_ms" in moved]
        # Those who were at it have heard by then where its topics are.
        until(0.6)
        server = self.servers.pop(rank)
        server.stop()
        # That it has ended is known to the others a moment later.
        while left := self.nodes_of(server.rank):
            for node in left:
                with contextlib.suppress(RuntimeError):
                    self.command("nodes", "remove", node)
        print(f"server {rank}: drained, ended and removed; {len(paused)} topics moved in use", flush=True)
        return paused

    def stop(self) -> None:
        for server in self.servers:
            server.process.terminate()
        for server in self.servers:
            server.process.wait(timeout=30)


def program(script: Path, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen([sys.executable, str(script), *arguments], text=True)


def stored_events(driver: thalweg.Driver, topic: str) -> int:
    return sum(partition.end for partition in driver.open_topic(topic).partitions)


def results_of(driver: thalweg.Driver, tasks: int) -> tuple[set[int], int]:
    """The tasks that have a result, and how many results there are."""
    found: set[int] = set()
    count = stored_events(driver, "results")
    with driver.open_topic("results").consumer("count") as consumer:
        for _ in range(count):
            event = consumer.pull(timeout=60)
            if event is None:
                break
            found.add(event.metadata["number"])
    return found & set(range(tasks)), count


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("output", type=Path)
    parser.add_argument("--angles", type=int, default=180)
    parser.add_argument("--tasks", type=int, default=1500)
    options = parser.parse_args()
    output = options.output.resolve()
    shutil.rmtree(output, ignore_errors=True)
    output.mkdir(parents=True)
    scratch = Path(tempfile.mkdtemp(prefix="thalweg-cluster-"))
    signal.alarm(WATCHDOG_S)

    started = time.time()
    cluster = Cluster(scratch)
    print(f"three servers of two shards: {len(cluster.nodes())} nodes, after {time.time() - started:.1f} s", flush=True)
    group_file = str(cluster.group_file)
    journals = [output / name for name in ("detector.journal", "reconstruction.journal", "tasks.journal")]
    journals += [output / f"worker-{number}.journal" for number in range(WORKERS)]
    programs: list[subprocess.Popen[str]] = []
    try:
        with thalweg.Driver(cluster.group_file, connect_timeout=60) as driver:
            for name in ("projections", "slices", "tasks", "results"):
                driver.create_topic(name, partitions=1, storage="disk", durability="synced")
            programs = [
                program(PIPELINE / "acquisition.py", "--group-file", group_file, "--journal", str(journals[0]),
                        "--angles", str(options.angles)),
                program(PIPELINE / "reconstruction.py", "--group-file", group_file, "--journal", str(journals[1]),
                        "--rows", ROWS),
                program(PIPELINE / "viewer.py", "--group-file", group_file, "--output", str(output),
                        "--slices", str(len(ROWS.split(",")))),
            ]
            with driver.open_topic("tasks").producer(name="tasks", journal=str(journals[2])) as producer:
                producer.push_many([{"number": number} for number in range(options.tasks)])
            programs += [program(HERE / "worker.py", group_file, str(journal)) for journal in journals[3:]]

            def until(share: float) -> None:
                """Waits until so much of the farm's work is done."""
                while stored_events(driver, "results") < share * options.tasks:
                    ended = [one for one in programs if one.poll() not in (None, 0)]
                    if ended:
                        raise RuntimeError(f"{ended[0].args[1]} ended with status {ended[0].returncode}")
                    time.sleep(0.05)

            failover = cluster.kill_each(until)
            until(0.4)
            cluster.add()
            until(0.5)
            paused = cluster.take_out(2, until)
            for one in programs:
                if one.wait() != 0:
                    raise RuntimeError(f"{one.args[1]} ended with status {one.returncode}")
            counts = {name: stored_events(driver, name) for name in ("projections", "slices", "tasks")}
            found, results = results_of(driver, options.tasks)
        audit = subprocess.run(
            [thalweg.executable(), "audit", "--json", "--group-file", group_file]
            + [part for journal in journals for part in ("--journal", str(journal))],
            stdout=subprocess.PIPE, text=True,
        )
    finally:
        for one in programs:
            if one.poll() is None:
                one.kill()
        cluster.stop()
        shutil.rmtree(scratch, ignore_errors=True)
    elapsed = time.time() - started
    facts = {
        "elapsed_s": round(elapsed, 1),
        "table_after_kill_s": [round(took, 2) for took in failover],
        "paused_ms": [round(one, 1) for one in paused],
        "stored": counts,
        "results": results,
        "audit_exit": audit.returncode,
        "audit": [json.loads(line) for line in audit.stdout.splitlines()],
    }
    (output / "facts.json").write_text(json.dumps(facts, indent=1))
    missing = options.tasks - len(found)
    wrong = counts["projections"] != options.angles + 1 or counts["tasks"] != options.tasks or missing != 0
    if audit.returncode != 0 or wrong:
        sys.exit(f"demo: {counts}, {missing} tasks have no result, audit says {audit.stdout}")
    print(f"nothing lost, nothing doubled: {options.angles} projections, {counts['slices']} slices and {options.tasks} tasks are stored "
          f"exactly as acknowledged, and each task has its result ({results - len(found)} were done twice by workers whose server was "
          f"killed), across a SIGKILL of each server, a fourth one and a drain, in {elapsed:.0f} s")
    print(f"the table answered {max(failover):.2f} s behind the kill of its leader; topics paused {max(paused, default=0):.0f} ms at most "
          f"when they moved")


if __name__ == "__main__":
    main()
