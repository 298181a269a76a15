"""Two sites that nobody reaches: both relays dial a gateway, and meet there."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import thalweg
from conftest import Server
from test_gateway import Gateway
from test_mirror import Link, contents, group, port, push, sites

sys.path.insert(0, str(Path(__file__).parents[2] / "examples" / "sites"))
from line import Line  # noqa: E402

__all__ = ["sites"]


class Relay:
    """A `thalweg relay` that runs, and the first line that it prints."""

    def __init__(self, *arguments: str, **environment: str) -> None:
        command = [thalweg.executable(), "relay", *arguments]
        variables = os.environ | environment
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, env=variables)
        assert self.process.stdout is not None
        self.said = self.process.stdout.readline().strip()

    def end(self) -> str:
        """Kills it, and gives what it has said."""
        self.process.kill()
        return self.process.communicate()[1]


@pytest.fixture
def gateway(tmp_path: Path) -> Iterator[Gateway]:
    gateway = Gateway(tmp_path, "--meet", "127.0.0.0/8")
    gateway.start()
    yield gateway
    gateway.stop()


@pytest.fixture
def relays() -> Iterator[Callable[..., Relay]]:
    started: list[Relay] = []

    def start(*arguments: str, **environment: str) -> Relay:
        started.append(Relay(*arguments, **environment))
        return started[-1]

    yield start
    for relay in started:
        relay.end()


def meet(relays: Callable[..., Relay], target: int, ways: tuple[str, str], **environment: str) -> str:
    """An address of this host that leads to the port of the other site."""
    offers, joins = ways
    offer = relays("offer", f"server=127.0.0.1:{target}", "--meet", offers, **environment)
    code = offer.said.removeprefix("thalweg relay join ").partition("@")[0]
    assert code.count("-") == 7, offer.end()
    join = relays("join", f"{code}@{joins}", **environment)
    assert " at " in join.said, (join.end(), offer.end())
    return join.said.rpartition(" at ")[2]


def test_a_mirror_through_a_tunnel_of_two_that_meet(
    sites: tuple[Server, Server], gateway: Gateway, relays: Callable[..., Relay], tmp_path: Path
) -> None:
    source, copy = sites
    lines = [Line(("127.0.0.1", gateway.port)) for _ in range(2)]
    there = meet(relays, port(copy), (f"127.0.0.1:{lines[0].port}", f"127.0.0.1:{lines[1].port}"))
    leads = tmp_path / "through.json"
    leads.write_text(json.dumps(group(copy) | {"endpoints": [f"tcp://{there}"]}))
    leads.chmod(0o600)
    with source.connect() as driver:
        driver.create_topic("shots", partitions=2)
        push(driver.open_topic("shots"), 0, 300, b"data" * 1000)
    link = Link(source.group_file, leads, "shots")
    count = 300
    for turn in range(4):
        with source.connect() as driver:
            push(driver.open_topic("shots"), count, 100, b"data" * 1000)
        count += 100
        if turn == 2:
            # The gateway dies, and another one is there at another port.
            assert gateway.process is not None
            gateway.process.kill()
            gateway.process.wait()
            gateway.start()
            for line in lines:
                line.to = ("127.0.0.1", gateway.port)
        else:
            lines[turn % 2].cut()
            lines[turn % 2].mend()
        link.until_whole(source, copy, "shots")
    link.stop()
    has = contents(source, "shots")
    assert len(has) == count
    assert contents(copy, "shots") == has
    for line in lines:
        line.close()


def test_a_gateway_without_the_option_lets_nobody_meet(tmp_path: Path, relays: Callable[..., Relay]) -> None:
    gateway = Gateway(tmp_path)
    gateway.start()
    offer = relays("offer", "a=127.0.0.1:1", "--meet", f"127.0.0.1:{gateway.port}")
    assert offer.said == ""
    assert offer.process.wait() == 1
    assert "is no gateway that lets relays meet (thalweg gateway --meet)" in offer.end()
    gateway.stop()
    narrow = Gateway(tmp_path, "--meet", "10.0.0.0/8")
    narrow.start()
    offer = relays("offer", "a=127.0.0.1:1", "--meet", f"127.0.0.1:{narrow.port}")
    assert offer.process.wait() == 1
    assert "none wait that comes from here" in offer.end()
    narrow.stop()


class Proxy:
    """A proxy that leads every name to one port."""

    def __init__(self, target: int) -> None:
        self.target = target
        self.asked: list[str] = []
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self) -> None:
        while True:
            near, _ = self.listener.accept()
            threading.Thread(target=self.serve, args=(near,), daemon=True).start()

    def serve(self, near: socket.socket) -> None:
        head = b""
        while not head.endswith(b"\r\n\r\n"):
            head += near.recv(1)
        self.asked.append(head.decode().partition("\r\n")[0])
        far = socket.create_connection(("127.0.0.1", self.target))
        near.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
        for ends in ((near, far), (far, near)):
            threading.Thread(target=self.copy, args=ends, daemon=True).start()

    @staticmethod
    def copy(source: socket.socket, target: socket.socket) -> None:
        try:
            while piece := source.recv(1 << 16):
                target.sendall(piece)
            target.shutdown(socket.SHUT_WR)
        except OSError:
            target.close()


def test_both_go_through_the_proxies_of_their_sites(
    sites: tuple[Server, Server], gateway: Gateway, relays: Callable[..., Relay], tmp_path: Path
) -> None:
    proxy = Proxy(gateway.port)
    ways = ("gate.site.test", "gate.site.test:443")
    there = meet(relays, port(sites[1]), ways, HTTPS_PROXY=f"http://127.0.0.1:{proxy.port}", NO_PROXY="")
    leads = tmp_path / "through.json"
    leads.write_text(json.dumps(group(sites[1]) | {"endpoints": [f"tcp://{there}"]}))
    leads.chmod(0o600)
    with thalweg.Driver(str(leads)) as driver:
        driver.create_topic("far")
        push(driver.open_topic("far"), 0, 10)
    assert len(contents(sites[1], "far")) == 10
    assert set(proxy.asked) == {"CONNECT gate.site.test:443 HTTP/1.1"}
