"""Where the demo's two sites are: network namespaces with firewalls and a WAN, or, for who may not make these, loopback."""

from __future__ import annotations

import json
import os
import socket
from pathlib import Path
from typing import Any, Protocol

import namespaces
from line import Line
from namespaces import B_INSIDE, B_OTHER_INSIDE, B_OTHER_OUTSIDE, B_OUTSIDE, TwoSites


class Places(Protocol):
    """Two sites, and what lies between them."""

    about: str

    def inside(self, site: str, *command: str) -> list[str]:
        """What runs a command in site `a` or `b`."""

    def cut(self) -> None:
        """From now on nothing passes."""

    def mend(self) -> None:
        """Everything passes again."""

    def listen(self) -> str:
        """Where the server of site B listens for the world."""

    def listen_inside(self) -> str:
        """Where it listens for programs of its own host, `HOST:PORT`."""

    def server_from_a(self, group_file: Path) -> str:
        """What site A calls the server of site B, whose group file this is."""

    def relay_listen(self) -> str:
        """Where the relay of site B listens, `HOST:PORT`."""

    def relay_from_a(self) -> str:
        """What site A calls it."""


def certificate(group_file: Path) -> str:
    """The hash of a server's certificate, from its group file."""
    document: dict[str, Any] = json.loads(group_file.read_text())
    return str(document["certificates"][0])


class Namespaces(TwoSites):
    """As a user of root has them."""

    about = (
        "two network namespaces, each behind a firewall with NAT that passes port 443 alone, outwards from A; between them 200 Mbit/s, "
        "10 ms each way"
    )

    def __init__(self) -> None:
        super().__init__(rate="200mbit", delay_ms=10)

    def listen(self) -> str:
        return f"tls://{B_INSIDE}:443"

    def listen_inside(self) -> str:
        return "127.0.0.1:7000"

    def server_from_a(self, group_file: Path) -> str:
        return f"tls://{B_OUTSIDE}:443?sha256={certificate(group_file)}"

    def relay_listen(self) -> str:
        return f"{B_OTHER_INSIDE}:443"

    def relay_from_a(self) -> str:
        return B_OTHER_OUTSIDE


class Loopback:
    """As everybody has them: a line that is cut by a program."""

    about = "one host, with two TCP lines on loopback that a program cuts (root and iproute2, nftables would make it two networks)"

    def __init__(self) -> None:
        self._lines: list[Line] = []
        self._tls_port, self._tcp_port, self._relay_port = (free_port() for _ in range(3))

    def __enter__(self) -> Loopback:
        return self

    def __exit__(self, *_: object) -> None:
        for line in self._lines:
            line.close()

    def inside(self, site: str, *command: str) -> list[str]:
        return list(command)

    def cut(self) -> None:
        for line in self._lines:
            line.cut()

    def mend(self) -> None:
        for line in self._lines:
            line.mend()

    def listen(self) -> str:
        return f"tls://127.0.0.1:{self._tls_port}"

    def listen_inside(self) -> str:
        return f"127.0.0.1:{self._tcp_port}"

    def server_from_a(self, group_file: Path) -> str:
        return f"tls://127.0.0.1:{self._line(self._tls_port)}?sha256={certificate(group_file)}"

    def relay_listen(self) -> str:
        return f"127.0.0.1:{self._relay_port}"

    def relay_from_a(self) -> str:
        return f"localhost:{self._line(self._relay_port)}"

    def _line(self, port: int) -> int:
        self._lines.append(Line(("127.0.0.1", port)))
        return self._lines[-1].port


def free_port() -> int:
    """A port of loopback that nobody has now."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port: int = probe.getsockname()[1]
        return port


def places() -> Namespaces | Loopback:
    """What can be had here."""
    why = namespaces.missing()
    if why or os.environ.get("THALWEG_DEMO_LOOPBACK"):
        print(f"no network namespaces ({why or 'as asked'}): the sites are on loopback", flush=True)
        return Loopback()
    return Namespaces()
