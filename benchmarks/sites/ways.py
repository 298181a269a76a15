"""The ways from a client to the server of a load: none, ours, and what sites use in their place."""

from __future__ import annotations

import http.client
import json
import os
import shutil
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

# After so long, what is started does not come up.
PATIENCE = 20.0
SITE = "localhost"
INSTANCE = "load-run.stream.localhost"


def cpu_seconds(pid: int) -> float:
    """What all threads of a process have used so far, to the nanosecond."""
    return time.clock_gettime((~pid << 3) | 2)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])


def wait_for(what: str, is_there: Callable[[], bool], process: subprocess.Popen[bytes]) -> None:
    until = time.monotonic() + PATIENCE
    while not is_there():
        if process.poll() is not None:
            raise RuntimeError(f"{what} ended with {process.returncode}")
        if time.monotonic() > until:
            raise RuntimeError(f"{what} did not come up")
        time.sleep(0.01)


class Place:
    """A folder, and the processes that are started there."""

    def __init__(self, folder: Path, thalweg: str, stack: ExitStack) -> None:
        self.folder, self.thalweg = folder, thalweg
        self.stack = stack
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        folder.mkdir(parents=True, exist_ok=True)

    def start(self, name: str, command: Sequence[str], *, unread: bool = False) -> subprocess.Popen[bytes]:
        """Starts it, with its output in `name.out` and `name.err`; or in pipes that nobody reads."""
        if unread:
            pipe = subprocess.PIPE
            process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe)
        else:
            with (self.folder / f"{name}.out").open("wb") as out, (self.folder / f"{name}.err").open("wb") as err:
                process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=err)
        self.processes[name] = process
        self.stack.callback(end, process)
        return process

    def write(self, name: str, text: str) -> str:
        path = self.folder / name
        path.write_text(text)
        return str(path)

    def until(self, name: str, is_up: Callable[[], bool]) -> None:
        """Waits for what was started under that name."""
        wait_for(name, is_up, self.processes[name])

    def said(self, name: str, key: str, process: subprocess.Popen[bytes]) -> str:
        """The value of a key in the lines of JSON that a command of ours prints, once it is there."""
        found: list[str] = []

        def look() -> bool:
            for line in (self.folder / f"{name}.out").read_text().splitlines():
                value = json.loads(line).get(key)
                if isinstance(value, str):
                    found.append(value)
                    return True
            return False

        wait_for(name, look, process)
        return found[0]


def end(process: subprocess.Popen[Any]) -> None:
    process.terminate()
    try:
        process.wait(5)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    for pipe in (process.stdout, process.stderr):
        if pipe is not None:
            pipe.close()


class Way:
    """How a server is reached: an address, what goes first, and the processes in between."""

    def __init__(
        self, port: int, processes: dict[str, int] | None = None, prefix: str | None = None, host: str = "127.0.0.1"
    ) -> None:
        self.host, self.port, self.prefix = host, port, prefix
        self.processes = processes or {}

    def cpu(self) -> dict[str, float]:
        return {name: cpu_seconds(pid) for name, pid in self.processes.items()}


def direct(place: Place, port: int) -> Way:
    return Way(port)


def relay(place: Place, port: int) -> Way:
    """Two processes and TLS between them, as at two sites."""
    offer_words = ["relay", "offer", f"load=127.0.0.1:{port}", "--listen", "127.0.0.1:0", "--name", SITE, "--json"]
    offer = place.start("offer", [place.thalweg, *offer_words])
    join_words = ["relay", "join", place.said("offer", "join", offer), "--json"]
    join = place.start("join", [place.thalweg, *join_words])
    address = place.said("join", "address", join)
    return Way(int(address.rpartition(":")[2]), {"offer": offer.pid, "join": join.pid})


def first_record(name: str) -> bytes:
    """What a client of TLS says first to a server of that name."""
    context = ssl.create_default_context()
    out = ssl.MemoryBIO()
    session = context.wrap_bio(ssl.MemoryBIO(), out, server_hostname=name)
    try:
        session.do_handshake()
    except ssl.SSLWantReadError:
        pass
    return out.read()


def gateway(place: Place, port: int, listen: str = "127.0.0.1:0", dialled: str = "127.0.0.1") -> Way:
    """By name, with the bytes of TLS as they are: the client says a first record, and then what it likes."""
    instance = place.write(
        "instance",
        # The words are our launcher's own, then those of the server that is not started.
        f"#!{sys.executable}\n"
        "import json, os, sys, time\n"
        "data = sys.argv[sys.argv.index('--json') - 1]\n"
        "os.makedirs(data + '/access', exist_ok=True)\n"
        "issuer = data + '/access/issuer'\n"
        "if not os.path.exists(issuer):\n"
        "    with open(issuer, 'w') as file: file.write(os.urandom(32).hex())\n"
        "group = sys.argv[sys.argv.index('--group-file') + 1]\n"
        f"found = dict(endpoints=['unix:///none', 'tls://127.0.0.1:{port}', 'tcp://127.0.0.1:{port}'],\n"
        "             certificates=['ab' * 32])\n"
        "with open(group, 'w') as file: json.dump(found, file)\n"
        "print(json.dumps({'ready': True}), flush=True)\n"
        "while True: time.sleep(3600)\n",
    )
    os.chmod(instance, 0o700)
    directory = place.folder / "gateway"
    words = ["gateway", str(directory), "--name", "api.localhost", "--domain", "stream.localhost"]
    words += ["--listen", listen, "--dialled", dialled, "--launcher", instance]
    process = place.start("gateway", [place.thalweg, *words])
    found = directory / "gateway.json"
    wait_for("gateway", found.exists, process)
    host, _, digits = json.loads(found.read_text())["addresses"][0].rpartition(":")
    at = int(digits)
    new = [place.thalweg, "token", "new", "--directory", str(directory), "--project", "load", "--can", "manage"]
    token = subprocess.run(new, check=True, capture_output=True, text=True).stdout.strip()
    trust = ssl.create_default_context(cafile=str(directory / "tls" / "authority.pem"))
    with socket.create_connection((host, at)) as plain:
        with trust.wrap_socket(plain, server_hostname="api.localhost") as stream:
            asked = http.client.HTTPConnection("api.localhost")
            asked.sock = stream
            body = json.dumps({"kind": "general", "name": "run", "resourceSettings": {"cpus": 1, "ram-gbs": 1}})
            path = "/olcf/open/v1alpha/streaming/rabbitmq/provision_cluster"
            asked.request("POST", path, body, {"Authorization": token})
            answer = asked.getresponse()
            if answer.status != 200:
                raise RuntimeError(f"the gateway makes no instance: {answer.status} {answer.read()!r}")
    prefix = place.folder / "first-record"
    prefix.write_bytes(first_record(INSTANCE))
    return Way(at, {"gateway": process.pid}, str(prefix))


# Of a server of HAProxy that is reached over TLS.
VERIFIED = f"ssl verify required ca-file certificate.pem verifyhost {SITE} sni str({SITE})"
HAPROXY = """global
    maxconn 4096
    ca-base {folder}
    crt-base {folder}
defaults
    mode tcp
    timeout connect 5s
    timeout client 50s
    timeout server 50s
"""


def haproxy(place: Place, name: str, lines: str) -> int:
    settings = HAPROXY.format(folder=place.folder) + lines
    path = place.write(f"{name}.cfg", settings)
    return place.start(name, ["haproxy", "-db", "-f", path]).pid


def certificate(place: Place) -> tuple[str, str]:
    """A certificate for this host and its key, as paths; `both.pem` has the two."""
    if not (place.folder / "both.pem").exists():
        words = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
        words += ["-keyout", "key.pem", "-out", "certificate.pem", "-days", "30", "-subj", f"/CN={SITE}"]
        words += ["-addext", f"subjectAltName=DNS:{SITE},IP:127.0.0.1"]
        subprocess.run(words, cwd=place.folder, check=True, capture_output=True)
        both = (place.folder / "certificate.pem").read_text() + (place.folder / "key.pem").read_text()
        place.write("both.pem", both)
    return str(place.folder / "certificate.pem"), str(place.folder / "key.pem")


def haproxy_tls(place: Place, port: int) -> Way:
    """Two of them and TLS between, as the relay is."""
    certificate(place)
    near, far = free_port(), free_port()
    # HAProxy's own default of threads: as many as processors.
    far_lines = f"listen far\n    bind 127.0.0.1:{far} ssl crt both.pem\n    server load 127.0.0.1:{port}\n"
    near_lines = (
        f"listen near\n    bind 127.0.0.1:{near}\n"
        f"    server far 127.0.0.1:{far} {VERIFIED}\n"
    )
    processes = {"far": haproxy(place, "far", far_lines)}
    processes["near"] = haproxy(place, "near", near_lines)
    place.until("far", lambda: listens(far))
    place.until("near", lambda: listens(near))
    return Way(near, processes)


def haproxy_sni(place: Place, port: int) -> Way:
    """One of them that routes by name and passes TLS on, as the router of OpenShift does."""
    at = free_port()
    lines = (
        f"frontend router\n    bind 127.0.0.1:{at}\n    tcp-request inspect-delay 5s\n"
        "    tcp-request content accept if { req.ssl_hello_type 1 }\n"
        f"    use_backend load if {{ req.ssl_sni -i {INSTANCE} }}\n"
        f"backend load\n    server load 127.0.0.1:{port}\n"
    )
    pid = haproxy(place, "router", lines)
    place.until("router", lambda: listens(at))
    prefix = place.folder / "first-record"
    prefix.write_bytes(first_record(INSTANCE))
    return Way(at, {"router": pid}, str(prefix))


STUNNEL = "foreground = yes\npid =\n"


def stunnels(place: Place, port: int, both: str, near_more: str, far_more: str, unread: bool) -> Way:
    near, far = free_port(), free_port()
    far_text = f"{STUNNEL}{both}[far]\naccept = 127.0.0.1:{far}\nconnect = 127.0.0.1:{port}\n{far_more}"
    near_text = f"{STUNNEL}{both}[near]\nclient = yes\naccept = 127.0.0.1:{near}\n"
    near_text += f"connect = 127.0.0.1:{far}\n{near_more}"
    program = shutil.which("stunnel4") or "stunnel"
    processes = {}
    for name, text, at in (("far", far_text, far), ("near", near_text, near)):
        path = place.write(f"{name}.conf", text)
        processes[name] = place.start(name, [program, path], unread=unread).pid
        # A connection made only to ask would use up one of the pipe.
        place.until(name, partial(listens, at))
    return Way(near, processes)


def listens(port: int) -> bool:
    """Whether somebody listens there, without asking him."""
    wanted = f":{port:04X}"
    for line in Path("/proc/thread-self/net/tcp").read_text().splitlines()[1:]:
        fields = line.split()
        if fields[1].endswith(wanted) and fields[3] == "0A":
            return True
    return False


def stunnel(place: Place, port: int) -> Way:
    """Started as its manual has it, its log in a file."""
    cert, key = certificate(place)
    far_more = f"cert = {cert}\nkey = {key}\n"
    near_more = f"verifyChain = yes\nCAfile = {cert}\ncheckHost = {SITE}\n"
    return stunnels(place, port, "", near_more, far_more, unread=False)


def stunnel_scistream(place: Place, port: int) -> Way:
    """As SciStream starts it: a shared key and no encryption, everything logged, into a pipe that nobody reads."""
    secrets = place.write("psk.txt", f"client1:{'5e' * 16}\n")
    os.chmod(secrets, 0o600)
    both = "debug = 7\n"
    shared = f"PSKsecrets = {secrets}\nciphers = eNULL\nsecurityLevel = 0\nsslVersionMax = TLSv1.2\n"
    return stunnels(place, port, both, f"PSKidentity = client1\n{shared}", shared, unread=True)


# What each is called in tables, and its program, without which it is left out. Those of FRESH are made for each run.
WAYS: dict[str, tuple[Callable[[Place, int], Way], str]] = {
    "direct": (direct, ""),
    "Thalweg relay": (relay, ""),
    "HAProxy, TLS": (haproxy_tls, "haproxy"),
    "stunnel": (stunnel, "stunnel4"),
    "stunnel as SciStream starts it": (stunnel_scistream, "stunnel4"),
    "Thalweg gateway": (gateway, ""),
    "HAProxy, by name": (haproxy_sni, "haproxy"),
}
FRESH = {"stunnel as SciStream starts it"}
