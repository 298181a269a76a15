"""A user of a cluster is known by MUNGE, without a token."""

from __future__ import annotations

import json
import os
import pickle
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

import thalweg
from conftest import Server

MUNGED = shutil.which("munged", path="/usr/sbin:/usr/local/sbin:/usr/bin")

pytestmark = pytest.mark.skipif(MUNGED is None, reason="Debian's package munge is not installed")


class Daemon:
    """A `munged` with a key of its own."""

    def __init__(self, directory: Path, key: bytes) -> None:
        directory.mkdir(mode=0o711)
        self.socket = directory / "socket"
        file = directory / "key"
        file.write_bytes(key)
        file.chmod(0o600)
        command = [str(MUNGED), "--foreground", "--force", f"--socket={self.socket}"]
        command += [f"--key-file={file}", f"--pid-file={directory / 'pid'}"]
        command += [f"--log-file={directory / 'log'}", f"--seed-file={directory / 'seed'}"]
        self.process = subprocess.Popen(
            command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        while not self.socket.exists():
            assert self.process.poll() is None

    def stop(self) -> None:
        self.process.kill()
        self.process.wait()


class Site:
    """A server whose host has a realm, with another realm beside it."""

    def __init__(self, directory: Path) -> None:
        # The path of a socket is short.
        self.own = Daemon(directory / "own", b"1" * 64)
        self.other = Daemon(directory / "other", b"2" * 64)
        self.server = Server(directory, "tls://127.0.0.1:0")
        self.server.start()
        with self.server.connect(namespace="stf") as owner:
            owner.create_topic("frames")
        self.server.stop()
        to = {"project": "stf", "may": ["read", "write"], "topics": ["**"]}
        maps = [{"if": {"uid": os.getuid()}, **to}]
        munge = {"socket": str(self.own.socket), "maps": maps}
        self.file = directory / "data" / "access" / "issuers.json"
        self.file.write_text(json.dumps({"munge": munge}))
        self.server.start()
        with self.server.connect():
            group = json.loads(self.server.group_file.read_text())
        address = next(one for one in group["endpoints"] if one.startswith("tls://"))
        self.address = f"{address}?sha256={group['certificates'][0]}"

    def stop(self) -> None:
        self.server.stop()
        self.own.stop()
        self.other.stop()


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    site = Site(tmp_path_factory.mktemp("munge"))
    yield site
    site.stop()


def test_a_user_needs_no_token(site: Site) -> None:
    credential = f"munge:{site.own.socket}"
    for number in range(2):
        with thalweg.Driver(address=site.address, credential=credential) as driver:
            with driver.open_topic("frames").producer() as producer:
                producer.push({"n": number})
    with thalweg.Driver(address=site.address, credential=credential) as driver:
        with driver.open_topic("frames").consumer("viewer") as consumer:
            for number in range(2):
                event = consumer.pull(timeout=60)
                assert event is not None
                assert event.metadata == {"n": number}
        # A member of a project is no owner.
        with pytest.raises(thalweg.NotAllowed, match=f'"{os.getuid()}" of "cluster"'):
            driver.create_topic("more")


def test_another_realm_is_none(site: Site) -> None:
    with pytest.raises(thalweg.Error, match="do both hosts have the same key"):
        thalweg.Driver(address=site.address, credential=f"munge:{site.other.socket}")


def test_a_daemon_that_is_away_is_said(site: Site, tmp_path: Path) -> None:
    with pytest.raises(thalweg.Error, match="is munged running"):
        thalweg.Driver(address=site.address, credential=f"munge:{tmp_path}/none")


def test_a_driver_goes_to_another_process_with_it(site: Site) -> None:
    credential = f"munge:{site.own.socket}"
    with thalweg.Driver(address=site.address, credential=credential) as driver:
        with pickle.loads(pickle.dumps(driver)) as other:
            assert [topic.name for topic in other.list_topics()] == ["frames"]
