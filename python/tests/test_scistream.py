"""SciStream's calls: a client as `s2uc` is, between two sites."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import thalweg

grpc = pytest.importorskip("grpc")
pytest.importorskip("google.protobuf")

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory  # noqa: E402

# A watchdog against a hang, not a measure of speed.
WATCHDOG = 120

STRING, INT32 = descriptor_pb2.FieldDescriptorProto.TYPE_STRING, descriptor_pb2.FieldDescriptorProto.TYPE_INT32
ONE, MANY = descriptor_pb2.FieldDescriptorProto.LABEL_OPTIONAL, descriptor_pb2.FieldDescriptorProto.LABEL_REPEATED

# SciStream's package `scistream`: each message with its fields, in the order of their numbers.
MESSAGES = {
    "Request": [("uid", STRING, ONE), ("role", STRING, ONE), ("num_conn", INT32, ONE), ("rate", INT32, ONE)],
    "UpdateTargets": [("uid", STRING, ONE), ("remote_listeners", STRING, MANY), ("role", STRING, ONE)],
    "Release": [("uid", STRING, ONE)],
    "Hello": [("uid", STRING, ONE), ("prod_listeners", STRING, MANY), ("role", STRING, ONE)],
    "Response": [("listeners", STRING, MANY), ("prod_listeners", STRING, MANY)],
    "AppResponse": [("message", STRING, ONE), ("listeners", STRING, MANY)],
}
CALLS = {
    "req": ("Request", "Response"),
    "update": ("UpdateTargets", "Response"),
    "release": ("Release", "Response"),
    "hello": ("Hello", "AppResponse"),
}


def messages() -> dict[str, Any]:
    """The classes of the messages, by Google's own library."""
    file = descriptor_pb2.FileDescriptorProto(name="scistream.proto", package="scistream", syntax="proto3")
    for name, fields in MESSAGES.items():
        message = file.message_type.add(name=name)
        for number, (field, kind, label) in enumerate(fields, 1):
            message.field.add(name=field, number=number, type=kind, label=label)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {
        name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"scistream.{name}"))
        for name in MESSAGES
    }


PROTO = messages()


class Client:
    """Makes the calls of `s2uc`, in its order."""

    def __init__(self, channel: Any, token: str = "INVALID_TOKEN") -> None:
        self.channel = channel
        self.metadata = (("authorization", token),)

    def call(self, name: str, **fields: Any) -> Any:
        asked, answered = CALLS[name]
        call = self.channel.unary_unary(
            f"/scistream.Control/{name}",
            request_serializer=PROTO[asked].SerializeToString,
            response_deserializer=PROTO[answered].FromString,
        )
        return call(PROTO[asked](**fields), metadata=self.metadata, timeout=WATCHDOG)

    def ask(self, uid: str, role: str, places: Sequence[str], count: int = 5, rate: int = 0) -> Any:
        """`req` on one thread, which waits for `hello` of another."""
        with ThreadPoolExecutor() as pool:
            asked = pool.submit(self.call, "req", uid=uid, role=role, num_conn=count, rate=rate)
            while not asked.done():
                try:
                    # It says PROD at both sites.
                    said = self.call("hello", uid=uid, role="PROD", prod_listeners=places)
                    assert said.message
                    break
                except grpc.RpcError as error:
                    # The session is there a moment later.
                    assert error.code() == grpc.StatusCode.NOT_FOUND, error
            return asked.result(WATCHDOG)

    def inbound_request(self, uid: str, places: Sequence[str], **more: Any) -> list[str]:
        answer = self.ask(uid, "PROD", places, **more)
        self.call("update", uid=uid, remote_listeners=answer.prod_listeners, role="PROD")
        return list(answer.listeners)

    def outbound_request(self, uid: str, prod_lstn: str, **more: Any) -> list[str]:
        answer = self.ask(uid, "CONS", ["localhost:5074", "localhost:5075"], **more)
        self.call("update", uid=uid, remote_listeners=prod_lstn.split(","), role="CONS")
        return list(answer.listeners)


class Site:
    """A `thalweg relay scistream` process."""

    def __init__(self, directory: Path, *more: str) -> None:
        directory.mkdir(exist_ok=True)
        self.log = directory / "log"
        command = [thalweg.executable(), "relay", "scistream", "--json"]
        # Places of each test are of this host, by any port; nothing else is allowed.
        command += ["--ports", "0", "--allow", "127.0.0.1:*", *more]
        if "--listen" not in more:
            command += ["--listen", "127.0.0.1:0"]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log)
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, self.log.read_text()
        self.ready = json.loads(line)

    @property
    def address(self) -> str:
        return str(self.ready["address"])

    def stop(self) -> None:
        self.process.send_signal(signal.SIGINT)
        try:
            assert self.process.wait(WATCHDOG) == 0, self.log.read_text()
        finally:
            self.process.kill()
            if self.process.stdout is not None:
                self.process.stdout.close()


Start = Callable[..., Site]
INBOUND = ("--inbound", "127.0.0.1:0", "--name", "127.0.0.1")


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    sites: list[Site] = []

    def start(name: str, *more: str) -> Site:
        sites.append(Site(tmp_path / name, *more))
        return sites[-1]

    yield start
    for site in sites:
        site.stop()


class Producer:
    """A program at site A that sends the same bytes to each connection."""

    def __init__(self, payload: bytes) -> None:
        self.payload = payload
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.address = "127.0.0.1:{}".format(self.listener.getsockname()[1])
        threading.Thread(target=self.serve, daemon=True).start()

    def serve(self) -> None:
        while True:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            with connection:
                connection.sendall(self.payload)


def read_all(address: str) -> bytes:
    """What a program at site B gets there."""
    host, _, port = address.rpartition(":")
    with socket.create_connection((host, int(port)), WATCHDOG) as connection:
        pieces = []
        while piece := connection.recv(1 << 20):
            pieces.append(piece)
    return b"".join(pieces)


def test_a_producer_at_one_site_reaches_a_consumer_at_the_other(start: Start) -> None:
    site_a, site_b = start("a", *INBOUND), start("b")
    payload = b"".join(hashlib.sha256(bytes([i % 256, i // 256])).digest() for i in range(60_000))
    producers = [Producer(payload), Producer(payload[::-1])]
    uid = "4f8583bc-a4d3-11ee-9fd6-034d1fcbd7c3"
    with grpc.insecure_channel(site_a.address) as a, grpc.insecure_channel(site_b.address) as b:
        to_a, to_b = Client(a), Client(b)
        offered = to_a.inbound_request(uid, [producer.address for producer in producers])
        # As many as asked for, and all the same: one port, and a code instead of a port each.
        assert len(offered) == 5 and len(set(offered)) == 1
        assert offered[0].endswith("@" + site_a.ready["inbound"])
        listeners = to_b.outbound_request(uid, ",".join(offered))
        assert len(set(listeners)) == 5
        # Listeners lead to the servers in turn.
        for index, address in enumerate(listeners):
            assert read_all(address) == producers[index % 2].payload
        # The end at one site is that at the other, and the ports are free again.
        to_b.call("release", uid=uid)
        with pytest.raises(OSError):
            read_all(listeners[0])
        while True:
            try:
                to_a.call("release", uid=uid)
            except grpc.RpcError as error:
                assert error.code() == grpc.StatusCode.NOT_FOUND
                break
    for site in (site_a, site_b):
        assert offered[0].split("@")[0] not in site.log.read_text()


def refused(call: Callable[[], Any]) -> tuple[Any, str]:
    with pytest.raises(grpc.RpcError) as caught:
        call()
    return caught.value.code(), caught.value.details()


def test_what_an_operator_does_not_allow_is_refused(start: Start) -> None:
    site = start("a", *INBOUND)
    code = grpc.StatusCode
    with grpc.insecure_channel(site.address) as channel:
        client = Client(channel)
        # A place of outside, by address and by name.
        for place in ("10.255.255.1:5672", "localhost:5672", "evil.example:443"):
            client.ask("inbound", "PROD", [place])
            said = refused(lambda: client.call("update", uid="inbound", remote_listeners=[place], role="PROD"))
            assert said[0] == code.PERMISSION_DENIED and f"--allow {place}" in said[1]
            client.call("release", uid="inbound")
        # What is no relay.
        said = refused(lambda: client.outbound_request("outbound", "127.0.0.1:5100"))
        assert said[0] == code.FAILED_PRECONDITION and "--plain" in said[1]
        # Calls that are none.
        for wrong in (
            {"uid": "", "role": "CONS", "num_conn": 1},
            {"uid": "../../etc", "role": "CONS", "num_conn": 1},
            {"uid": "u", "role": "OTHER", "num_conn": 1},
            {"uid": "u", "role": "CONS", "num_conn": 0},
            {"uid": "u", "role": "CONS", "num_conn": 1_000_000},
            {"uid": "u", "role": "CONS", "num_conn": 1, "rate": -1},
        ):
            assert refused(lambda: client.call("req", **wrong))[0] == code.INVALID_ARGUMENT
        for name in ("update", "release", "hello"):
            assert refused(lambda: client.call(name, uid="nobody"))[0] in (code.NOT_FOUND, code.INVALID_ARGUMENT)
        # A message that is too long, and a thousand calls with bytes of chance.
        long = refused(lambda: client.call("hello", uid="u", prod_listeners=["x" * 100_000]))
        assert long[0] == code.INVALID_ARGUMENT
        raw = channel.unary_unary("/scistream.Control/req")
        for index in range(1000):
            noise = hashlib.sha256(str(index).encode()).digest() * 3
            assert refused(lambda: raw(noise[: index % 90], timeout=WATCHDOG))[0] == code.INVALID_ARGUMENT
        assert refused(lambda: channel.unary_unary("/other.Service/req")(b""))[0] == code.UNIMPLEMENTED
        # Connections that speak something else, or the beginning of HTTP/2 and then something else.
        host, _, port = site.address.rpartition(":")
        for index in range(50):
            noise = hashlib.sha256(str(index).encode()).digest() * 20
            beginning = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" if index % 2 else b""
            with socket.create_connection((host, int(port)), WATCHDOG) as stranger:
                stranger.sendall(beginning + noise)
        assert refused(lambda: client.call("release", uid="nobody"))[0] == code.NOT_FOUND


def test_who_says_nothing_keeps_nobody_out(start: Start, many_files: None) -> None:
    site = start("a", *INBOUND)
    host, _, port = site.address.rpartition(":")
    silent = [socket.create_connection((host, int(port)), WATCHDOG) for _ in range(1000)]
    with grpc.insecure_channel(site.address) as channel:
        client = Client(channel)
        # One that is known stays, however many come.
        for _ in range(2):
            assert refused(lambda: client.call("release", uid="nobody"))[0] == grpc.StatusCode.NOT_FOUND
            silent += [socket.create_connection((host, int(port)), WATCHDOG) for _ in range(100)]
    # The oldest went for those who came; it had been told the settings of HTTP/2.
    while silent[0].recv(1000):
        pass
    for one in silent:
        one.close()


def test_a_server_that_is_no_relay_is_reached_without_encryption_if_allowed(start: Start) -> None:
    site = start("b", "--plain")
    producer = Producer(b"plain bytes")
    with grpc.insecure_channel(site.address) as channel:
        listeners = Client(channel).outbound_request("u", producer.address, count=2)
        assert [read_all(address) for address in listeners] == [b"plain bytes"] * 2
    assert "without encryption" in site.log.read_text()


def certificate(directory: Path) -> tuple[Path, Path]:
    """A server's own certificate, as SciStream's installation makes one."""
    chain, key = directory / "server.crt", directory / "server.key"
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
    command += ["-days", "2", "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"]
    try:
        subprocess.run([*command, "-keyout", str(key), "-out", str(chain)], check=True, capture_output=True)
    except FileNotFoundError:
        pytest.skip("there is no openssl to make a certificate with")
    return chain, key


def test_beyond_the_host_calls_need_tls_and_a_token(start: Start, tmp_path: Path) -> None:
    chain, key = certificate(tmp_path)
    keys = tmp_path / "keys"
    everywhere = ("--listen", "0.0.0.0:0")
    command = [thalweg.executable(), "relay", "scistream", *everywhere, "--allow", "127.0.0.1:1"]
    for more in ((), ("--tokens", str(keys)), ("--tls-cert", str(chain), "--tls-key", str(key))):
        ran = subprocess.run([*command, *more], capture_output=True, text=True, timeout=WATCHDOG)
        assert ran.returncode == 2, ran.stderr
        assert "from other hosts" in ran.stderr
    tls = ("--tls-cert", str(chain), "--tls-key", str(key))
    site = start("a", *everywhere, *tls, "--tokens", str(keys), *INBOUND)

    def token(project: str, can: str = "manage", topics: str = "scistream") -> str:
        command = [thalweg.executable(), "token", "new", "--directory", str(keys), "--project", project]
        command += ["--can", can, "--topics", topics]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()

    producer = Producer(b"events")
    trust = grpc.ssl_channel_credentials(root_certificates=chain.read_bytes())
    port = site.address.rpartition(":")[2]
    code = grpc.StatusCode
    with grpc.secure_channel(f"localhost:{port}", trust) as channel:
        for wrong in ("INVALID_TOKEN", "", token("stf008")[:-4]):
            asked = refused(lambda: Client(channel, wrong).call("req", uid="u", role="PROD", num_conn=1))
            assert asked[0] == code.UNAUTHENTICATED
        for narrow in (token("stf008", can="read"), token("stf008", topics="other")):
            asked = refused(lambda: Client(channel, narrow).call("req", uid="u", role="PROD", num_conn=1))
            assert asked[0] == code.PERMISSION_DENIED
        ours, theirs = Client(channel, token("stf008")), Client(channel, "Bearer " + token("phy123"))
        ours.inbound_request("u", [producer.address])
        # Another project does not find it.
        assert refused(lambda: theirs.call("release", uid="u"))[0] == code.NOT_FOUND
        assert refused(lambda: theirs.call("hello", uid="u"))[0] == code.NOT_FOUND
        ours.call("release", uid="u")
    # Without TLS there is nothing to talk to.
    with grpc.insecure_channel(f"localhost:{port}") as channel:
        assert refused(lambda: Client(channel).call("release", uid="u"))[0] == code.UNAVAILABLE
    log = site.log.read_text()
    assert "stf008" in log and "thalweg-token" not in log


def test_a_client_that_goes_away_while_it_waits_leaves_nothing(start: Start) -> None:
    site = start("b")
    with grpc.insecure_channel(site.address) as channel:
        call = channel.unary_unary(
            "/scistream.Control/req",
            request_serializer=PROTO["Request"].SerializeToString,
            response_deserializer=PROTO["Response"].FromString,
        )
        waits = call.future(PROTO["Request"](uid="u", role="CONS", num_conn=16))
        client = Client(channel)
        while "session u: CONS" not in site.log.read_text():
            os.sched_yield()
        waits.cancel()
        while "session u: is over" not in site.log.read_text():
            os.sched_yield()
        # Its uid and its ports are for the next one.
        assert len(client.ask("u", "CONS", ["x:1"], count=16).listeners) == 16
        client.call("release", uid="u")
