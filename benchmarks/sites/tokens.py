"""What strangers cost a server: a hundred a second who show a token that is wrong in one way."""

from __future__ import annotations

import argparse
import base64
import json
import socket
import ssl
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from ways import Place, cpu_seconds, wait_for

RATE = 100
PREFIX = "thalweg-token-1:"


class Server:
    """A server with an encrypted and an open port, and tokens of it."""

    def __init__(self, place: Place) -> None:
        self.place, self.thalweg = place, place.thalweg
        self.data, found = place.folder / "data", place.folder / "thalweg.json"
        words = ["serve", str(self.data), "--group-file", str(found)]
        words += ["--listen", "tls://127.0.0.1:0", "--listen", "tcp://127.0.0.1:0"]
        self.process = place.start("server", [self.thalweg, *words])
        wait_for("the server", found.exists, self.process)
        endpoints = json.loads(found.read_text())["endpoints"]
        parts = [one.partition("://") for one in endpoints]
        self.ports = {scheme: int(rest.rpartition(":")[2]) for scheme, _, rest in parts if scheme in ("tcp", "tls")}

    def token(self, name: str, *words: str) -> str:
        path = self.place.folder / f"{name}.token"
        new = [self.thalweg, "token", "new", "--directory", str(self.data), "--output", str(path), *words]
        subprocess.run(new, check=True, capture_output=True)
        return path.read_text().strip()


def changed(token: str, change: Any) -> str:
    """The token with its bytes changed."""
    text = token.removeprefix(PREFIX)
    raw = bytearray(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))
    change(raw)
    return PREFIX + base64.urlsafe_b64encode(bytes(raw)).decode().rstrip("=")


def end_of_first_block(raw: bytearray) -> int:
    """Where the second one begins: behind version, issuer, count; length, limits, next key and signature."""
    payload = int.from_bytes(raw[34:36], "little")
    return 34 + 2 + payload + 32 + 64


def flip_signature(raw: bytearray) -> None:
    raw[end_of_first_block(raw) - 1] ^= 1


def cut_last_block(raw: bytearray) -> None:
    """What somebody would do who wants to be rid of a restriction: the last block goes, the last key stays."""
    raw[33] = 1
    del raw[end_of_first_block(raw) : -32]


def first_words(server: Server, token: str, *more: str) -> bytes:
    """What a client of ours says first with that token, heard by a listener in between."""
    path = server.place.folder / "shown.token"
    path.write_text(token + "\n")
    path.chmod(0o600)
    heard = bytearray()
    with socket.create_server(("127.0.0.1", 0)) as tap:
        address = f"tcp://127.0.0.1:{tap.getsockname()[1]}"
        words = [server.thalweg, "topic", "list", "--address", address, "--credential", str(path), *more]
        asks = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            near, _ = tap.accept()
            with near:
                near.settimeout(0.3)
                try:
                    while piece := near.recv(1 << 16):
                        heard += piece
                except TimeoutError:
                    pass
        finally:
            asks.kill()
            asks.wait()
    # One frame: 32 bytes of header, which say how long the rest of its head is.
    return bytes(heard)


def come(server: Server, scheme: str, said: bytes, context: ssl.SSLContext | None) -> bytes:
    """One stranger, to the end; what it is answered."""
    answer = b""
    with socket.create_connection(("127.0.0.1", server.ports[scheme]), 10) as plain:
        # Without it what is said waits for an acknowledgement of the handshake.
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        stream: socket.socket = plain
        if context is not None:
            stream = context.wrap_socket(plain, server_hostname="localhost")
        with stream:
            if said:
                stream.sendall(said)
                try:
                    answer = stream.recv(1 << 16)
                except (ConnectionError, ssl.SSLError):
                    pass
    return answer


def measure(options: argparse.Namespace, stack: ExitStack, scratch: Path) -> list[dict[str, Any]]:
    server = Server(Place(scratch, options.thalweg, stack))
    good = server.token("good", "--project", "a", "--can", "read")
    restrict = [server.thalweg, "token", "restrict", str(scratch / "good.token"), "--can", "read", "--topics", "x"]
    restricted = subprocess.run(restrict, check=True, capture_output=True, text=True).stdout.strip()
    revoked = server.token("revoked", "--project", "a")
    expired = server.token("expired", "--project", "a", "--for", "1s")
    foreign = Server(Place(scratch / "foreign", options.thalweg, stack)).token("foreign", "--project", "a")
    revoke = [server.thalweg, "token", "revoke", str(scratch / "revoked.token"), "--directory", str(server.data)]
    subprocess.run(revoke, check=True, capture_output=True)
    # The server looks at what is revoked every few seconds, and the short one has to be over.
    time.sleep(7 if not options.quick else 6)
    shown = {
        "nobody speaks": b"",
        "a good token": first_words(server, good),
        "bad signature": first_words(server, changed(good, flip_signature)),
        "restriction cut off": first_words(server, changed(restricted, cut_last_block)),
        "another server's": first_words(server, foreign),
        "expired": first_words(server, expired),
        "revoked": first_words(server, revoked),
        "another project": first_words(server, good, "--namespace", "b"),
        "garbage": first_words(server, PREFIX + "A" * 200),
    }
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    seconds = 0.5 if options.quick else 3.0
    results = []
    for scheme, contexts in (("tcp", None), ("tls", context)):
        for name, said in shown.items():
            answers: set[str] = set()
            come(server, scheme, said, contexts)
            idle_began, before = time.monotonic(), cpu_seconds(server.process.pid)
            time.sleep(seconds / 2)
            idle = (cpu_seconds(server.process.pid) - before) / (time.monotonic() - idle_began)
            began, before = time.monotonic(), cpu_seconds(server.process.pid)
            count = round(seconds * RATE)
            for index in range(count):
                time.sleep(max(0.0, began + index / RATE - time.monotonic()))
                answers.add(told(come(server, scheme, said, contexts)))
            took = time.monotonic() - began
            used = cpu_seconds(server.process.pid) - before
            results.append(
                {
                    "transport": scheme,
                    "token": name,
                    "count": count,
                    "per_s": count / took,
                    "of_a_core": used / took - idle,
                    "us_each": (used - idle * took) / count * 1e6,
                    "idle_of_a_core": idle,
                    "answers": sorted(answers),
                }
            )
            each = f"{results[-1]['us_each']:.0f} us each"
            print(f"{scheme}: {name}: {each}: {sorted(answers)}", file=sys.stderr, flush=True)
    return results


def told(answer: bytes) -> str:
    """What an answer says, as far as it is text."""
    text = "".join(chr(byte) if 32 <= byte < 127 else " " for byte in answer)
    words = max(text.split("   "), key=len, default="").strip()
    return words[:60]
