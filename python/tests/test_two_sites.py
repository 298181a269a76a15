"""Two sites with firewalls and NAT between them: what is written at A is at B, whatever the WAN does, by a mirror and by a tunnel.

Needs root, `ip`, `tc`, `nft` and `cc`; skipped without. `THALWEG_CUT_SECONDS` is how long the longest cut lasts, 120 by default.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import thalweg
from conftest import Server
from test_mirror import Link, contents, push

sys.path.insert(0, str(Path(__file__).parents[2] / "examples" / "sites"))
import namespaces  # noqa: E402
from namespaces import (  # noqa: E402
    A_OUTSIDE,
    B_INSIDE,
    B_OTHER_INSIDE,
    B_OTHER_OUTSIDE,
    B_OUTSIDE,
    PROXY,
    TwoSites,
)

EXAMPLES = Path(__file__).parents[2] / "examples" / "sites"
CUT_SECONDS = float(os.environ.get("THALWEG_CUT_SECONDS", "120"))
PLAIN = "127.0.0.1:7000"
"""Where the server of site B listens for programs of its own host."""


class SiteServer(Server):
    """A server inside of a site."""

    def __init__(self, sites: TwoSites, site: str, directory: Path, *listen: str) -> None:
        super().__init__(directory, *listen)
        self.sites, self.site = sites, site

    def start(self) -> None:
        command = self.sites.inside(self.site, thalweg.executable(), "serve")
        command += ["--directory", str(self.directory / "data")]
        command += ["--group-file", str(self.group_file)]
        for address in self.listen:
            command += ["--listen", address]
        with (self.directory / "server.log").open("ab") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log)


def environment(proxied: bool) -> dict[str, str]:
    """Of a program of site A."""
    variables = dict(os.environ)
    variables.pop("HTTPS_PROXY", None)
    return variables | ({"HTTPS_PROXY": PROXY} if proxied else {})


class SiteLink(Link):
    """A link inside of site A."""

    def __init__(self, sites: TwoSites, *arguments: str, proxied: bool) -> None:
        self.before = sites.inside("a")
        self.environment = environment(proxied)
        super().__init__(*arguments)


class Tunnel:
    """What leads from an address of site A to the server of site B, and a program that uses it: motor positions, one by one."""

    def __init__(self, sites: TwoSites, token: Path, directory: Path, *, proxied: bool) -> None:
        relay = [thalweg.executable(), "relay"]
        offer = [*relay, "offer", f"server={PLAIN}", "--listen", f"{B_OTHER_INSIDE}:443"]
        offer += ["--name", B_OTHER_OUTSIDE, "--for", "1h"]
        self.processes: list[subprocess.Popen[str]] = []
        code = self.start(sites.inside("b", *offer)).removeprefix("thalweg relay join ")
        join = self.start(sites.inside("a", *relay, "join", code), environment(proxied))
        self.log = directory / "motor.log"
        address = f"tcp://{join.rpartition(' at ')[2]}"
        motor = [sys.executable, str(EXAMPLES / "motor.py"), address, str(token), str(self.log), "3600"]
        self.motor = subprocess.Popen(sites.inside("a", *motor))

    def start(self, command: list[str], variables: dict[str, str] | None = None) -> str:
        """Gives the first line that it prints."""
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=variables)
        self.processes.append(process)
        assert process.stdout is not None
        return process.stdout.readline().strip()

    def acknowledged(self) -> list[int]:
        """Positions that site B has acknowledged."""
        if not self.log.exists():
            return []
        whole = self.log.read_text().rpartition("\n")[0]
        return [json.loads(line)["n"] for line in whole.splitlines()]

    def until_more(self) -> None:
        """Waits for an acknowledgement that comes from now on."""
        count = len(self.acknowledged())
        while len(self.acknowledged()) < count + 2:
            assert self.motor.poll() is None, "the program that uses the tunnel has ended"
            time.sleep(0.02)

    def end(self) -> None:
        for process in (self.motor, *self.processes):
            process.kill()
            process.wait()
        for process in self.processes:
            assert process.stdout is not None
            process.stdout.close()


@pytest.fixture(params=[False, True], ids=["direct", "proxied"])
def proxied(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


@pytest.fixture
def sites(proxied: bool) -> Iterator[TwoSites]:
    if why := namespaces.missing():
        pytest.skip(why)
    with TwoSites(rate="200mbit", delay_ms=10, proxied=proxied) as sites:
        yield sites


@pytest.fixture
def servers(sites: TwoSites, tmp_path: Path) -> Iterator[tuple[SiteServer, SiteServer]]:
    """At A one for this host alone, at B one at port 443 with TLS, and for its own host."""
    made = []
    for site, listen in (("a", []), ("b", [f"tls://{B_INSIDE}:443", f"tcp://{PLAIN}"])):
        directory = tmp_path / site
        directory.mkdir()
        server = SiteServer(sites, site, directory, *listen)
        server.start()
        made.append(server)
    yield made[0], made[1]
    Link.end_all()
    for server in made:
        server.stop()


def reaches(sites: TwoSites, site: str, host: str, port: int) -> bool:
    """Whether a program of a site gets a connection, within a second."""
    code = "import socket, sys; socket.create_connection((sys.argv[1], int(sys.argv[2])), 1).close()"
    command = sites.inside(site, sys.executable, "-c", code, host, str(port))
    return subprocess.run(command, capture_output=True).returncode == 0


def test_the_firewalls_pass_port_443_outwards_from_a_and_nothing_else(sites: TwoSites, proxied: bool) -> None:
    listen = "import socket, sys; kept = [socket.create_server(('', int(port))) for port in sys.argv[1:]]; print('ready', flush=True); sys.stdin.read()"
    listeners = []
    for site in ("a", "b"):
        command = sites.inside(site, sys.executable, "-c", listen, "443", "7000")
        listeners.append(subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True))
    try:
        for listener in listeners:
            assert listener.stdout is not None
            assert listener.stdout.readline() == "ready\n"
        assert reaches(sites, "a", B_OUTSIDE, 443) is not proxied
        assert reaches(sites, "a", B_OTHER_OUTSIDE, 443) is not proxied
        assert not reaches(sites, "a", B_OUTSIDE, 7000)
        assert not reaches(sites, "b", A_OUTSIDE, 443)
        assert not reaches(sites, "b", A_OUTSIDE, 7000)
    finally:
        for listener in listeners:
            listener.communicate()


def test_a_mirror_is_whole_whatever_the_wan_does(
    sites: TwoSites, servers: tuple[SiteServer, SiteServer], tmp_path: Path, proxied: bool
) -> None:
    source, copy = servers
    chance = random.Random(3)
    copy.connect().close()
    document = json.loads(copy.group_file.read_text())
    there = f"tls://{B_OUTSIDE}:443?sha256={document['certificates'][0]}"
    token = tmp_path / "token"
    command = [thalweg.executable(), "token", "new", "--can", "read,write,manage", "--for", "1h"]
    command += ["--directory", str(copy.directory / "data"), "--output", str(token)]
    subprocess.run(command, check=True, capture_output=True)
    with copy.connect() as driver:
        driver.create_topic("motors")
    arguments = [str(source.group_file), there, "shots", "--to-credential", str(token)]
    image = chance.randbytes(500_000)
    with source.connect() as driver:
        driver.create_topic("shots", partitions=2)
    link = SiteLink(sites, *arguments, proxied=proxied)
    tunnel = Tunnel(sites, token, tmp_path, proxied=proxied)
    count = 0
    cuts = [1.0, 10.0, CUT_SECONDS] if not proxied else [1.0]
    try:
        for turn, seconds in enumerate(cuts):
            for _ in range(4):
                with source.connect() as driver:
                    push(driver.open_topic("shots"), count, 200)
                    push(driver.open_topic("shots"), count + 200, 6, image)
                count += 206
                time.sleep(chance.random() * 0.2)
            sites.cut()
            # The instrument goes on, and what it writes is acknowledged.
            with source.connect() as driver:
                push(driver.open_topic("shots"), count, 100)
            count += 100
            time.sleep(seconds)
            sites.mend()
            tunnel.until_more()
            match turn:
                case 0:
                    source.kill()
                    copy.kill()
                    copy.start()
                    source.start()
                case 1:
                    link.kill()
                    link = SiteLink(sites, *arguments, proxied=proxied)
        link.until(lambda last: last.get("state") == "copying" and last["lag_events"] == 0)
        link.stop()
        has = contents(source, "shots")
        assert len(has) == count
        assert contents(copy, "shots") == has
        tunnel.until_more()
        tunnel.end()
        with copy.connect() as driver:
            assert driver.open_topic("shots").gaps() == []
            with driver.open_topic("motors").read() as reader:
                stored = [event.metadata["n"] for event in reader]
        # The last one may have been stored and not have been acknowledged yet.
        assert stored == list(range(len(stored)))
        assert tunnel.acknowledged() == stored[: len(tunnel.acknowledged())]
    finally:
        link.process.kill()
        tunnel.end()
