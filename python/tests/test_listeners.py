"""Whatever a process of ours listens at, and every way to start one from Python and C: other hosts reach nothing."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import thalweg


def ports_beyond_the_host(pid: int) -> set[int]:
    """The ports at which a process listens for other hosts, as the kernel has them."""
    opened = set()
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        try:
            opened.add(os.readlink(entry))
        except OSError:
            continue
    ports = set()
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]:
            words = line.split()
            address, port = words[1].split(":")
            listens = words[3] == "0A" and f"socket:[{words[9]}]" in opened
            is_loopback = (len(address) == 8 and address.endswith("7F")) or (
                address == "00000000000000000000000001000000"
            )
            if listens and not is_loopback:
                ports.add(int(port, 16))
    return ports


def test_the_walk_finds_one() -> None:
    code = "import socket, sys; s = socket.create_server(('0.0.0.0', 0)); print(1, flush=True); sys.stdin.read()"
    command = [sys.executable, "-c", code]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        assert len(ports_beyond_the_host(process.pid)) == 1
        process.communicate()


PLAIN = ["tcp://0.0.0.0:0", "tcp://[::]:0"]


@pytest.mark.parametrize("listen", [None, *([address] for address in PLAIN), ["tls://0.0.0.0:0"]])
def test_a_server_in_this_process_is_for_this_process(tmp_path: Path, listen: list[str] | None) -> None:
    before = ports_beyond_the_host(os.getpid())
    settings = {"listen": listen, "amqp": ["tls://0.0.0.0:0"]} if listen else None
    try:
        driver = thalweg.Driver.embedded(tmp_path / "data", settings=settings)
    except thalweg.ServerError as refused:
        assert listen is not None
        assert "listen" in str(refused)
    else:
        with driver:
            driver.create_topic("t")
            assert ports_beyond_the_host(os.getpid()) == before
    assert ports_beyond_the_host(os.getpid()) == before


@pytest.mark.parametrize("address", PLAIN)
def test_the_command_of_the_package_refuses_as_well(tmp_path: Path, address: str) -> None:
    environment = {**os.environ, "THALWEG_LISTEN": address}
    command = [thalweg.executable(), "serve", str(tmp_path / "data")]
    ran = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert ran.returncode == 2, ran.stderr
    assert "nothing is encrypted there" in ran.stderr
    assert not (tmp_path / "data").exists()
