"""Queues and groups of real processes, which are killed and stopped at random, on one server and on a cluster.

`make kill-sharing ROUNDS=100` and `make kill-cluster` run it long. A failure prints its seed; with
`THALWEG_KILL_SEED` the same is done in the same order, though what happens in
between is up to the machine.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from sharing_under_kills.cluster import Cluster

import thalweg

PROGRAM = Path(__file__).parent / "sharing_under_kills" / "program.py"
BAD_EVERY = 29
PARTITIONS = 4
#: Against hangs only.
WATCHDOG = 300.0
ROUNDS = int(os.environ.get("THALWEG_KILL_ROUNDS", "6"))
SEED = int(os.environ.get("THALWEG_KILL_SEED", random.SystemRandom().randrange(1 << 32)))


class Crew:
    """The processes, each in a place where another one follows it."""

    def __init__(self, server: Any, directory: Path) -> None:
        self.server = server
        self.directory = directory
        self.started = 0
        self.places: list[tuple[str, subprocess.Popen[bytes]]] = []
        self.stopped: set[int] = set()
        self.ending: set[str] = set()
        for role in ["produce", "work", "work", "work", "read", "read", "read"]:
            self.places.append((role, self.start(role, len(self.places))))

    def start(self, role: str, place: int) -> subprocess.Popen[bytes]:
        self.started += 1
        journal = self.directory / f"{role}-{self.started}"
        command = [sys.executable, str(PROGRAM), role, str(self.server.group_file)]
        with (self.directory / f"errors-{role}-{self.started}").open("wb") as errors:
            return subprocess.Popen(
                [*command, str(journal), str(self.started), str(place)], stderr=errors
            )

    def kill(self, place: int) -> None:
        role, process = self.places[place]
        process.kill()
        process.wait()
        self.stopped.discard(place)
        self.places[place] = (role, self.start(role, place))

    def stop_or_continue(self, place: int) -> None:
        stopped = place in self.stopped
        self.places[place][1].send_signal(signal.SIGCONT if stopped else signal.SIGSTOP)
        self.stopped.symmetric_difference_update({place})

    def heal(self) -> None:
        for place in list(self.stopped):
            self.stop_or_continue(place)

    def end(self, *roles: str) -> None:
        self.ending.update(roles)
        ending = [process for role, process in self.places if role in roles]
        for process in ending:
            process.terminate()
        codes = {process.wait(WATCHDOG) for process in ending}
        # One that was only just started may not have come to listen to it.
        assert codes <= {0, -signal.SIGTERM}, f"seed {SEED}: {codes}: {self.errors()}"

    def errors(self) -> str:
        return "\n".join(log.read_text() for log in self.directory.glob("errors-*"))

    def lines(self, role: str) -> Iterator[list[str]]:
        for journal in self.directory.glob(f"{role}-*"):
            for line in journal.read_text().splitlines():
                yield line.split()

    def progress(self) -> int:
        """How much was done; nobody may have ended by itself, for nothing is done by who has."""
        ended = [f"{role} {process.args[-2]}: {process.returncode}" for role, process in self.places
                 if role not in self.ending and process.poll() is not None]
        assert not ended, f"seed {SEED}: ended by themselves: {ended}: {self.errors()}"
        return sum(journal.stat().st_size for journal in self.directory.iterdir())


def wait(until: Callable[[], bool], what: str, progress: Callable[[], int] = int) -> None:
    """Waits as long as there is `progress`: a backlog takes as long as it is long."""
    done, deadline = progress(), time.monotonic() + WATCHDOG
    while not until():
        if progress() > done:
            done, deadline = progress(), time.monotonic() + WATCHDOG
        assert time.monotonic() < deadline, f"seed {SEED}: {what} did not come about"
        # Nothing tells of it; the cores are for those who bring it about.
        threading.Event().wait(0.02)


def rest(seconds: float) -> None:
    threading.Event().wait(seconds)


def described(server: Any, kind: str, topic: str, name: str) -> list[dict[str, Any]]:
    """The partitions of a group or a queue, as the operator sees them."""
    command = [thalweg.executable(), kind, "describe", topic, "--name", name, "--json"]
    done = subprocess.run(
        [*command, "--group-file", str(server.group_file)],
        capture_output=True,
        text=True,
        timeout=WATCHDOG,
    )
    # Nobody has joined yet, or the server is on its way.
    return json.loads(done.stdout)["partitions"] if done.returncode == 0 else []


def drained(server: Any, kind: str, topic: str, name: str) -> bool:
    partitions = described(server, kind, topic, name)
    return bool(partitions) and all(partition["lag"] == 0 for partition in partitions)


def positions(server: Any) -> dict[int, tuple[int, int]]:
    partitions = described(server, "group", "readings", "readers")
    return {p["partition"]: (p["incarnation"], p["position"]) for p in partitions}


def run(crew: Crew) -> None:
    chance = random.Random(SEED)
    known: dict[int, tuple[int, int]] = {}
    for _ in range(ROUNDS):
        # Now and then for longer than leases and sessions last.
        goal = crew.progress() + chance.choice([5_000, 20_000, 200_000])
        wait(lambda: crew.progress() >= goal, "progress")
        now = positions(crew.server)
        back = {p: (at, now[p]) for p, at in known.items() if p in now and now[p] < at}
        assert not back, f"seed {SEED}: positions moved back: {back}"
        known |= now
        place = chance.randrange(len(crew.places))
        match chance.randrange(6):
            case 0 if not isinstance(crew.server, Cluster):
                crew.server.kill()
                crew.server.start()
            case 0 | 3 if isinstance(crew.server, Cluster):
                crew.server.disturb(chance, ["work", "readings"], rest)
            case 1 | 2:
                crew.kill(place)
            # Progress needs a producer and somebody to take what it makes.
            case _ if place in crew.stopped or len(crew.stopped) < 2 and place > 0:
                crew.stop_or_continue(place)
            case _:
                crew.kill(place)
    crew.heal()
    crew.end("produce")


def audit_queue(crew: Crew, driver: thalweg.Driver, pushed: set[int]) -> None:
    pulled = {int(n) for kind, n, *_ in crew.lines("work") if kind == "pulled"}
    assert pushed <= pulled, f"seed {SEED}: never handled: {sorted(pushed - pulled)[:10]}"
    spans = defaultdict(list)
    ends = defaultdict(list)
    for kind, text, *times in crew.lines("work"):
        if kind == "pulled":
            continue
        settled, (begin, end) = int(text), map(int, times)
        spans[settled].append((begin, end, kind))
        if kind != "returned":
            ends[settled].append(kind)
    # What was confirmed was durable, so it was confirmed once.
    twice = {n: kinds for n, kinds in ends.items() if len(kinds) > 1}
    assert not twice, f"seed {SEED}: settled twice: {twice}"
    # A settlement counts under a valid lease only: from the pull to the call
    # it was, and two of one event never are at a time.
    for n, several in spans.items():
        several.sort()
        for one, other in zip(several, several[1:]):
            assert one[1] <= other[0], f"seed {SEED}: {n} was leased twice: {one}, {other}"
    letters: dict[int, str] = {}
    with driver.open_topic("work.dead").consumer("audit") as consumer:
        while (event := consumer.pull(timeout=1.0)) is not None:
            n, headers = event.metadata["n"], dict(event.headers)
            assert n not in letters, f"seed {SEED}: {n} died twice"
            letters[n] = headers["thalweg.reason"].decode()
            assert headers["thalweg.topic"] == b"work"
            assert int(headers["thalweg.deliveries"]) >= 1
    assert letters == {n: f"{n} is bad" for n in pulled if n % BAD_EVERY == 0}, f"seed {SEED}"


def test_nothing_is_lost_or_done_under_two_leases(server: Any, tmp_path: Path) -> None:
    check(server, tmp_path)


def test_nor_where_servers_of_a_cluster_are_killed_or_stopped_or_cut_off(cluster: Cluster, tmp_path: Path) -> None:
    check(cluster, tmp_path)
    print(f"of the servers: {', '.join(cluster.done)}")


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    cluster = Cluster(tmp_path)
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.stop()


def check(server: Any, tmp_path: Path) -> None:
    print(f"THALWEG_KILL_SEED={SEED} THALWEG_KILL_ROUNDS={ROUNDS}")
    journals = tmp_path / "journals"
    journals.mkdir()
    with server.connect() as driver:
        driver.create_topic("work", partitions=2)
        driver.create_topic("readings", partitions=PARTITIONS)
        crew = Crew(server, journals)
        try:
            run(crew)
            wait(lambda: drained(server, "queue", "work", "farm"), "an empty queue", crew.progress)
            wait(lambda: drained(server, "group", "readings", "readers"), "the group's end", crew.progress)
            crew.end("work", "read")
        finally:
            for _, process in crew.places:
                process.kill()
                process.wait()
        pushed = {int(n) for _, n in crew.lines("produce")}
        assert pushed
        audit_queue(crew, driver, pushed)
        read = {int(n) for _, n in crew.lines("read")}
        assert pushed <= read, f"seed {SEED}: never read: {sorted(pushed - read)[:10]}"
        again = sum(kind == "pulled" and fate[0] != "1" for kind, _, *fate in crew.lines("work"))
        print(f"{len(pushed)} events, {crew.started} processes, {again} deliveries that were not the first")
