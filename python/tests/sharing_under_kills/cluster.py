"""Three servers that act as one, each in a network namespace of its own where there can be such."""

from __future__ import annotations

import os
import random
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import thalweg

SERVERS = 3
#: How long a server is away or cut off, s: less than others take to notice, more than an election, and longer than it takes to be away.
AWAY = [0.3, 2.0, 7.0]


class Hosts:
    """Network namespaces on one switch, between which packets can be lost, each way by itself. Needs root and `ip`."""

    def __init__(self, count: int) -> None:
        self.names = [f"tw{os.getpid()}p{host}" for host in range(count)]
        self.switch = f"tw{os.getpid()}ps"

    def make(self) -> None:
        for name in [*self.names, self.switch]:
            _ip("netns", "add", name)
        _ip("-n", self.switch, "link", "add", "bridge", "type", "bridge")
        _ip("-n", self.switch, "link", "set", "bridge", "up")
        for host, name in enumerate(self.names):
            port = f"port{host}"
            peer = ["type", "veth", "peer", "name", port, "netns", self.switch]
            _ip("-n", name, "link", "set", "lo", "up")
            _ip("-n", name, "link", "add", "nic", *peer)
            _ip("-n", self.switch, "link", "set", port, "master", "bridge", "up")
            _ip("-n", name, "addr", "add", f"{self.address(host)}/24", "dev", "nic")
            _ip("-n", name, "link", "set", "nic", "up")

    def address(self, host: int) -> str:
        return f"10.83.0.{host + 1}"

    def inside(self, host: int) -> list[str]:
        return ["ip", "netns", "exec", self.names[host]]

    def route(self, what: str, links: list[tuple[int, int]]) -> None:
        """With `add` nothing gets from one to the other, for each of `links`; with `del` it does again."""
        for one, other in links:
            _ip("-n", self.names[one], "route", what, "blackhole", self.address(other))

    def remove(self) -> None:
        for name in [*self.names, self.switch]:
            subprocess.run(["ip", "netns", "del", name], capture_output=True)


class Cluster:
    """The servers. Clients know them by one group file, and reach them by their sockets."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.group_file = directory / "thalweg.json"
        self.processes: list[subprocess.Popen[bytes] | None] = [None] * SERVERS
        self.hosts: Hosts | None = Hosts(SERVERS)
        self.done: list[str] = []
        try:
            self.hosts.make()
        except (OSError, subprocess.CalledProcessError) as error:
            print(f"no links are cut: {error}")
            self.hosts.remove()
            self.hosts = None

    def start(self) -> None:
        for rank in range(SERVERS):
            self._start(rank)

    def _start(self, rank: int) -> None:
        address = self.hosts.address(rank) if self.hosts else "127.0.0.1"
        command = self.hosts.inside(rank) if self.hosts else []
        command += [thalweg.executable(), "serve", str(self.directory / f"data-{rank}")]
        command += ["--group-file", str(self.group_file), "--cluster", str(self.directory / "shared")]
        command += ["--rank", str(rank), "--size", str(SERVERS), "--cluster-listen", f"tls://{address}:0"]
        with (self.directory / f"server-{rank}.log").open("ab") as log:
            self.processes[rank] = subprocess.Popen(command, stdout=log, stderr=log)

    def connect(self) -> thalweg.Driver:
        return thalweg.Driver(self.group_file, connect_timeout=120.0)

    def disturb(self, chance: random.Random, topics: list[str], rest: Callable[[float], None]) -> None:
        """Kills a server, stops it, cuts it off from others, or moves a topic to another; `rest` waits while that lasts."""
        rank, away = chance.randrange(SERVERS), chance.choice(AWAY)
        process = self.processes[rank]
        assert process is not None
        match chance.randrange(4):
            case 0:
                self.done.append("kill")
                process.kill()
                process.wait()
                rest(away)
                self._start(rank)
            case 1:
                self.done.append("stop")
                process.send_signal(signal.SIGSTOP)
                rest(away)
                process.send_signal(signal.SIGCONT)
            case 2 if self.hosts:
                self.done.append("cut")
                others = [other for other in range(SERVERS) if other != rank]
                if chance.randrange(2):
                    others = [chance.choice(others)]
                links = [(rank, other) for other in others], [(other, rank) for other in others]
                cut = chance.choice([links[0], links[1], links[0] + links[1]])
                self.hosts.route("add", cut)
                rest(away)
                self.hosts.route("del", cut)
            case _:
                command = [thalweg.executable(), "topic", "place", chance.choice(topics)]
                command += ["--node", str(1 + rank), "--group-file", str(self.group_file), "--timeout", "5"]
                # A server that was killed a moment ago may be none yet that a topic can go to.
                moved = subprocess.run(command, capture_output=True).returncode == 0
                self.done.append("move" if moved else "move that failed")

    def stop(self) -> None:
        """Ends them as an operator does."""
        running = [process for process in self.processes if process is not None]
        for process in running:
            process.send_signal(signal.SIGCONT)
            process.terminate()
        try:
            for process in running:
                process.wait(60)
        finally:
            for process in running:
                process.kill()
                process.wait()
            if self.hosts is not None:
                self.hosts.remove()


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True)
