"""ZeroMQ and nanomsg as sources and sinks of a topic, with their own libraries at the other end."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pynng
import pytest
import zmq

import thalweg
from conftest import Server

Context = zmq.Context[zmq.Socket[bytes]]


class End:
    """`thalweg relay source` or `sink`."""

    def __init__(self, way: str, address: str, topic: str, server: Server, *more: str) -> None:
        at = {"source": "--to", "sink": "--from"}[way]
        command = [thalweg.executable(), "relay", way, address, topic, at, str(server.group_file)]
        command += ["--json", "--every", "0.2", *more]
        self.errors = tempfile.TemporaryFile("w+")
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=self.errors, text=True)
        begun = self.said()
        assert begun["event"] == "begun"
        self.address = (begun["address"] or "").rpartition("://")[2]

    def said(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        # A test that waits for what does not come ends.
        watchdog = threading.Timer(120, self.process.kill)
        watchdog.start()
        line = self.process.stdout.readline()
        watchdog.cancel()
        assert line, f"it has ended: {self.told()}"
        said: dict[str, Any] = json.loads(line)
        return said

    def told(self) -> str:
        """What it has said on standard error until now."""
        # What is written has a place of its own in the file, which a seek would move.
        at = self.errors.fileno()
        return os.pread(at, os.fstat(at).st_size, 0).decode()

    def until(self, done: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """Waits for an account of which that is true, through as many others as come in two minutes."""
        watchdog = time.monotonic() + 120
        while not done(said := self.said()):
            assert time.monotonic() < watchdog, f"it says {said}, and has said: {self.told()}"
        return said

    def until_told(self, text: str) -> None:
        """Waits until it has said that on standard error."""
        self.until(lambda _: text in self.told())

    def until_one_is_refused(self, text: str, connect: Callable[[], zmq.Socket[bytes]]) -> None:
        """Connects sockets until it has said that of one. A socket reads what is spoken here: it may go before it has
        said what it is, and does not come again then."""
        gone = "has gone before its handshake was done"
        while text not in self.told():
            before = self.told().count(gone)
            assert before < 20, self.told()
            wrong = connect()
            self.until(lambda _, before=before: text in self.told() or self.told().count(gone) > before)
            wrong.close(linger=0)

    def end(self) -> int:
        """Ctrl-C; gives how many events it has moved."""
        self.process.send_signal(signal.SIGINT)
        assert self.process.stdout is not None
        *_, last = self.process.stdout.read().splitlines()
        assert self.process.wait() == 0, self.told()
        return int(json.loads(last)["events"])

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()
        if not self.errors.closed:
            self.errors.close()


Start = Callable[..., End]


@pytest.fixture
def start() -> Iterator[Start]:
    ends: list[End] = []

    def begin(*arguments: Any) -> End:
        ends.append(End(*arguments))
        return ends[-1]

    yield begin
    for end in ends:
        end.kill()


@pytest.fixture
def context() -> Iterator[Context]:
    context = zmq.Context()
    context.setsockopt(zmq.RCVTIMEO, 120_000)
    yield context
    context.destroy(linger=0)


@pytest.fixture
def topic(server: Server) -> Iterator[thalweg.Topic]:
    with server.connect() as driver:
        yield driver.create_topic("frames")


def events(topic: thalweg.Topic, count: int) -> list[tuple[Any, bytes]]:
    """The first events of a topic."""
    with topic.consumer("reader", start="beginning") as consumer:
        found = []
        for _ in range(count):
            event = consumer.pull(timeout=60)
            assert event is not None
            found.append((event.metadata, bytes(event.data)))
        return found


def push(topic: thalweg.Topic, numbers: range) -> None:
    with topic.producer() as producer:
        for number in numbers:
            producer.push({"n": number}, number.to_bytes(4, "big"))


def numbers(count: int) -> list[bytes]:
    return [number.to_bytes(4, "big") for number in range(count)]


def test_messages_of_zeromq_are_events(
    server: Server, topic: thalweg.Topic, start: Start, context: Context
) -> None:
    source = start("source", "zmq-pull://127.0.0.1:0", "frames", server, "--bind")
    sender = context.socket(zmq.PUSH)
    sender.connect(f"tcp://{source.address}")
    large = bytes(range(256)) * 20_000
    sender.send(b"alone")
    sender.send_multipart([b'{"frame": 1, "shape": [2, 3]}', large])
    sender.send_multipart([b"no json", b"", b"third"])
    # A first part that is too long for metadata is data.
    header = b'{"long": "' + b"x" * (1 << 20) + b'"}'
    sender.send_multipart([header, b"data"])
    assert events(topic, 4) == [
        ({}, b"alone"),
        ({"frame": 1, "shape": [2, 3]}, large),
        ({}, b"no jsonthird"),
        ({}, header + b"data"),
    ]
    assert source.end() == 4


def test_messages_of_nanomsg_are_events(server: Server, topic: thalweg.Topic, start: Start) -> None:
    with pynng.Push0(listen="tcp://127.0.0.1:0") as sender:
        port = str(sender.listeners[0].local_address).rpartition(":")[2]
        source = start("source", f"sp-pull://127.0.0.1:{port}", "frames", server)
        large = bytes(range(256)) * 20_000
        sender.send(b"alone")
        sender.send(large)
        assert events(topic, 2) == [({}, b"alone"), ({}, large)]
        assert source.end() == 2


def test_all_parts_are_data_where_that_is_asked_for(
    server: Server, topic: thalweg.Topic, start: Start, context: Context
) -> None:
    source = start("source", "zmq-pull://127.0.0.1:0", "frames", server, "--bind", "--data-only")
    sender = context.socket(zmq.PUSH)
    sender.connect(f"tcp://{source.address}")
    sender.send_multipart([b'{"frame": 1}', b"data"])
    assert events(topic, 1) == [({}, b'{"frame": 1}data')]


def test_events_are_messages_of_zeromq(
    server: Server, topic: thalweg.Topic, start: Start, context: Context
) -> None:
    with topic.producer() as producer:
        producer.push({"n": 1}, b"first")
        producer.push({"n": 2}, b"second")
    receiver = context.socket(zmq.PULL)
    port = receiver.bind_to_random_port("tcp://127.0.0.1")
    sink = start("sink", f"zmq-push://127.0.0.1:{port}", "frames", server, "--name", "out")
    got = [receiver.recv_multipart() for _ in range(2)]
    assert [(json.loads(metadata), data) for metadata, data in got] == [({"n": 1}, b"first"), ({"n": 2}, b"second")]
    sink.until(lambda said: said["events"] == 2)
    assert sink.end() == 2
    # It goes on where it was.
    with topic.producer() as producer:
        producer.push({"n": 3}, b"third")
    again = start("sink", f"zmq-push://127.0.0.1:{port}", "frames", server, "--name", "out", "--data-only")
    assert receiver.recv_multipart() == [b"third"]
    again.until(lambda said: said["events"] == 1)


def test_events_are_messages_of_nanomsg(server: Server, topic: thalweg.Topic, start: Start) -> None:
    push(topic, range(20))
    sink = start("sink", "sp-push://127.0.0.1:0", "frames", server, "--name", "out", "--bind")
    with pynng.Pull0(dial=f"tcp://{sink.address}") as receiver:
        assert [receiver.recv() for _ in range(20)] == numbers(20)
    sink.until(lambda said: said["events"] == 20)


def test_what_went_through_is_the_same(
    server: Server, topic: thalweg.Topic, start: Start, context: Context
) -> None:
    source = start("source", "zmq-pull://127.0.0.1:0", "frames", server, "--bind")
    sink = start("sink", "zmq-push://127.0.0.1:0", "frames", server, "--name", "out", "--bind")
    sender, receiver = context.socket(zmq.PUSH), context.socket(zmq.PULL)
    sender.connect(f"tcp://{source.address}")
    receiver.connect(f"tcp://{sink.address}")
    messages = [[b'{"htype": "dimage-1.0"}', b'{"shape": [1]}', bytes(300_000), b"{}"], [b"a", b""], [b"{}", b"x"]]
    for message in messages * 20:
        sender.send_multipart(message)
    assert [receiver.recv_multipart() for _ in range(60)] == messages * 20


def test_large_messages(server: Server, topic: thalweg.Topic, start: Start, context: Context) -> None:
    # Longer than all that is held otherwise.
    large = bytes(range(256)) * (80 << 12)
    source = start("source", "zmq-pull://127.0.0.1:0", "frames", server, "--bind")
    other = start("source", "sp-pull://127.0.0.1:0", "frames", server, "--bind")
    sender = context.socket(zmq.PUSH)
    sender.connect(f"tcp://{source.address}")
    sender.send_multipart([b'{"by": "zmq"}', large])
    source.until(lambda said: said["events"] == 1)
    with pynng.Push0(dial=f"tcp://{other.address}") as pusher:
        pusher.send(large)
        other.until(lambda said: said["events"] == 1)
    # And out again.
    sink = start("sink", "zmq-push://127.0.0.1:0", "frames", server, "--bind", "--name", "a")
    receiver = context.socket(zmq.PULL)
    receiver.connect(f"tcp://{sink.address}")
    for metadata in (b'{"by": "zmq"}', b"{}"):
        found = receiver.recv_multipart()
        assert json.loads(found[0]) == json.loads(metadata)
        assert found[1] == large
    sink = start("sink", "sp-push://127.0.0.1:0", "frames", server, "--bind", "--name", "b")
    with pynng.Pull0(dial=f"tcp://{sink.address}", recv_max_size=0) as puller:
        assert puller.recv() == large


def test_a_message_that_is_too_long_ends_its_connection(
    server: Server, topic: thalweg.Topic, start: Start, context: Context
) -> None:
    source = start("source", "zmq-pull://127.0.0.1:0", "frames", server, "--bind", "--message", "1")
    sender, other = context.socket(zmq.PUSH), context.socket(zmq.PUSH)
    for one in (sender, other):
        one.connect(f"tcp://{source.address}")
    sender.send(bytes((1 << 20) + 1))
    source.until_told("the limit is 1048576")
    other.send(b"short")
    assert events(topic, 1) == [({}, b"short")]


def test_a_message_that_the_topic_refuses_is_told(server: Server, start: Start, context: Context) -> None:
    schema = {"type": "schema", "schema": {"type": "object", "required": ["angle"]}}
    with server.connect() as driver:
        checked = driver.create_topic("checked", validator=schema)
        source = start("source", "zmq-pull://127.0.0.1:0", "checked", server, "--bind")
        sender = context.socket(zmq.PUSH)
        sender.connect(f"tcp://{source.address}")
        sender.send_multipart([b'{"angle": 1}', b"a"])
        sender.send(b"no metadata")
        sender.send_multipart([b'{"angle": 2}', b"b"])
        assert events(checked, 2) == [({"angle": 1}, b"a"), ({"angle": 2}, b"b")]
        assert source.until(lambda said: said["events"] == 2)["lost"] == 1
        assert "checked refuses a message, which is lost" in source.told()


def test_a_topic_that_is_full_stops_the_senders(server: Server, start: Start, context: Context) -> None:
    overflow = {"type": "reject", "retry_after_ms": 20}
    with server.connect() as driver:
        full = driver.create_topic(
            "full", overflow=overflow, retention={"count": 10}, keep_until_acknowledged=["slow"]
        )
        source = start("source", "zmq-pull://127.0.0.1:0", "full", server, "--bind", "--memory", "1")
        sender = context.socket(zmq.PUSH)
        sender.connect(f"tcp://{source.address}")
        for number in numbers(200):
            sender.send(number)
        source.until_told("topic is full")
        found = []
        with full.consumer("slow", start="beginning") as consumer:
            while len(found) < 200:
                event = consumer.pull(timeout=120)
                assert event is not None
                found.append(bytes(event.data))
                event.acknowledge()
        assert sorted(found) == numbers(200)
        said = source.until(lambda said: said["events"] == 200)
        assert said["lost"] == 0
        assert source.end() == 200


def test_what_a_topic_drops_is_counted(server: Server, start: Start, context: Context) -> None:
    with server.connect() as driver:
        driver.create_topic(
            "small", overflow={"type": "drop_newest"}, retention={"count": 10}, keep_until_acknowledged=["nobody"]
        )
        source = start("source", "zmq-pull://127.0.0.1:0", "small", server, "--bind")
        sender = context.socket(zmq.PUSH)
        sender.connect(f"tcp://{source.address}")
        # One after the other, for batches are dropped as a whole.
        for number in range(30):
            sender.send(b"x")
            source.until(lambda said, n=number: said["events"] + said["lost"] == n + 1)
        assert source.said()["lost"] > 0


def test_an_end_leaves_receivers_their_time(
    server: Server, topic: thalweg.Topic, start: Start, context: Context
) -> None:
    with topic.producer() as producer:
        for number in numbers(60):
            producer.push({}, number + bytes(200_000))
    sink = start("sink", "zmq-push://127.0.0.1:0", "frames", server, "--bind", "--name", "out", "--data-only")
    receiver = context.socket(zmq.PULL)
    receiver.setsockopt(zmq.RCVHWM, 1)
    receiver.setsockopt(zmq.HEARTBEAT_IVL, 20)
    receiver.setsockopt(zmq.HEARTBEAT_TIMEOUT, 60_000)
    receiver.connect(f"tcp://{sink.address}")
    sink.until(lambda said: said["events"] > 0)
    sink.process.send_signal(signal.SIGINT)
    # It waits for what it was sent to be read, all of it.
    got = []
    while sink.process.poll() is None:
        if receiver.poll(50):
            got.append(receiver.recv()[:4])
    while receiver.poll(200):
        got.append(receiver.recv()[:4])
    assert sink.process.returncode == 0, sink.told()
    assert sink.process.stdout is not None
    *_, last = sink.process.stdout.read().splitlines()
    assert len(got) >= json.loads(last)["events"]
    again = start("sink", "zmq-push://127.0.0.1:0", "frames", server, "--bind", "--name", "out", "--data-only")
    other = context.socket(zmq.PULL)
    other.connect(f"tcp://{again.address}")
    while set(got) != set(numbers(60)):
        got.append(other.recv()[:4])


def test_an_event_that_nobody_took_waits(
    server: Server, topic: thalweg.Topic, start: Start, context: Context
) -> None:
    push(topic, range(50))
    sink = start("sink", "zmq-push://127.0.0.1:0", "frames", server, "--bind", "--name", "out")
    assert sink.until(lambda said: said["event"] == "account")["events"] == 0
    sink.kill()
    # Killed with all of them in hand: they come again.
    again = start("sink", "zmq-push://127.0.0.1:0", "frames", server, "--bind", "--name", "out", "--data-only")
    receiver = context.socket(zmq.PULL)
    receiver.connect(f"tcp://{again.address}")
    assert [receiver.recv() for _ in range(50)] == numbers(50)


def test_a_sink_that_is_killed_loses_nothing(
    server: Server, topic: thalweg.Topic, start: Start, context: Context
) -> None:
    receiver = context.socket(zmq.PULL)
    port = receiver.bind_to_random_port("tcp://127.0.0.1")
    push(topic, range(2000))
    got = []
    for kills in range(4):
        sink = start("sink", f"zmq-push://127.0.0.1:{port}", "frames", server, "--name", "out", "--data-only")
        got += [receiver.recv() for _ in range(300 * (kills + 1))]
        sink.kill()
    last = start("sink", f"zmq-push://127.0.0.1:{port}", "frames", server, "--name", "out", "--data-only")
    while set(got) != set(numbers(2000)):
        got.append(receiver.recv())
    last.kill()


def test_a_receiver_that_comes_back_gets_the_rest(
    server: Server, topic: thalweg.Topic, start: Start, context: Context
) -> None:
    sink = start("sink", "zmq-push://127.0.0.1:0", "frames", server, "--name", "out", "--bind", "--data-only")
    for count in range(1, 4):
        push(topic, range(50))
        receiver = context.socket(zmq.PULL)
        receiver.connect(f"tcp://{sink.address}")
        assert [receiver.recv() for _ in range(50)] == numbers(50)
        receiver.close(linger=0)
        # An account from before the receiver came may still be waiting to be read.
        ended = sink.until(lambda said: said["connections"] == 0 and said["events"] >= 50 * count)
        assert ended["events"] == 50 * count


def test_a_server_that_comes_back_goes_on_with_both(
    server: Server, topic: thalweg.Topic, start: Start, context: Context
) -> None:
    source = start("source", "zmq-pull://127.0.0.1:0", "frames", server, "--bind")
    sink = start("sink", "zmq-push://127.0.0.1:0", "frames", server, "--name", "out", "--bind", "--data-only")
    sender, receiver = context.socket(zmq.PUSH), context.socket(zmq.PULL)
    sender.connect(f"tcp://{source.address}")
    receiver.connect(f"tcp://{sink.address}")
    for round in range(3):
        for number in numbers(100):
            sender.send(bytes([round]) + number)
        if round < 2:
            server.kill()
            sender.send(b"meanwhile")
            server.start()
    expected = {bytes([round]) + number for round in range(3) for number in numbers(100)} | {b"meanwhile"}
    got = set()
    while got != expected:
        got.add(receiver.recv())
    assert source.end() == 302


def test_a_source_that_comes_back_gets_what_its_sender_kept(
    server: Server, topic: thalweg.Topic, start: Start, context: Context
) -> None:
    sender = context.socket(zmq.PUSH)
    port = sender.bind_to_random_port("tcp://127.0.0.1")
    address = f"zmq-pull://127.0.0.1:{port}"
    source = start("source", address, "frames", server)
    for number in numbers(100):
        sender.send(number)
    source.until(lambda said: said["events"] == 100)
    monitor = sender.get_monitor_socket(zmq.EVENT_DISCONNECTED)
    source.kill()
    # What is sent before it knows that the other side has gone is lost.
    monitor.recv_multipart()
    sender.disable_monitor()
    again = start("source", address, "frames", server)
    for number in numbers(100):
        sender.send(b"again" + number)
    found = [data for _, data in events(topic, 200)]
    assert found == numbers(100) + [b"again" + number for number in numbers(100)]
    assert again.end() == 100


def test_a_server_that_is_away_stops_the_senders(
    server: Server, topic: thalweg.Topic, start: Start, context: Context
) -> None:
    source = start("source", "zmq-pull://127.0.0.1:0", "frames", server, "--bind", "--memory", "4")
    sender = context.socket(zmq.PUSH)
    sender.setsockopt(zmq.SNDHWM, 4)
    sender.connect(f"tcp://{source.address}")
    server.pause()
    sent = 0
    # Some are in buffers, and then none is taken.
    while sender.poll(1000, zmq.POLLOUT):
        sender.send(sent.to_bytes(4, "big") + bytes(1 << 20))
        sent += 1
        assert sent < 400, "it takes everything"
    server.go_on()
    assert [data[:4] for _, data in events(topic, sent)] == numbers(sent)


def test_a_receiver_that_does_not_read_is_waited_for(
    server: Server, topic: thalweg.Topic, start: Start, context: Context
) -> None:
    with topic.producer() as producer:
        for number in numbers(200):
            producer.push({}, number + bytes(1 << 20))
    sink = start("sink", "zmq-push://127.0.0.1:0", "frames", server, "--name", "out", "--bind", "--memory", "4", "--data-only")
    receiver = context.socket(zmq.PULL)
    receiver.setsockopt(zmq.RCVHWM, 1)
    receiver.connect(f"tcp://{sink.address}")
    # Its buffers are full when two accounts are the same.
    before = -1
    while (now := sink.until(lambda said: said["connections"] == 1)["events"]) != before or now == 0:
        before = now
    assert before < 200
    sink.kill()
    command = [thalweg.executable(), "lag", "frames", "-g", str(server.group_file), "--json"]
    lag = json.loads(subprocess.run(command, capture_output=True, check=True).stdout)["lag"]
    # The cursor is not ahead of what the receiver has, or its system.
    assert 0 < lag < 200
    assert [receiver.recv()[:4] for _ in range(200 - lag)] == numbers(200 - lag)
    start("sink", f"zmq-push://{sink.address}", "frames", server, "--bind", "--name", "out", "--data-only")
    got: set[bytes] = set()
    while not got >= set(numbers(200)[200 - lag :]):
        got.add(receiver.recv()[:4])


def test_two_receivers_share(
    server: Server, topic: thalweg.Topic, start: Start, context: Context
) -> None:
    sink = start("sink", "zmq-push://127.0.0.1:0", "frames", server, "--name", "out", "--bind", "--data-only")
    receivers = [context.socket(zmq.PULL) for _ in range(2)]
    for receiver in receivers:
        receiver.connect(f"tcp://{sink.address}")
    sink.until(lambda said: said["connections"] == 2)
    poller = zmq.Poller()
    for receiver in receivers:
        poller.register(receiver, zmq.POLLIN)
    got: dict[Any, list[bytes]] = {receiver: [] for receiver in receivers}
    # One after the other: both are free, and have turns.
    with topic.producer() as producer:
        for number in numbers(60):
            producer.push({}, number).result()
            [(receiver, _)] = poller.poll()
            got[receiver].append(receiver.recv())
    shares = [len(found) for found in got.values()]
    assert sum(shares) == 60
    assert min(shares) > 15, shares
    # Many at once: each comes to one of them.
    push(topic, range(400))
    found = []
    while len(found) < 400:
        found += [receiver.recv() for receiver, _ in poller.poll()]
    assert sorted(found) == numbers(400)


def test_two_senders_are_both_heard(
    server: Server, topic: thalweg.Topic, start: Start, context: Context
) -> None:
    source = start("source", "zmq-pull://127.0.0.1:0", "frames", server, "--bind")
    senders = [context.socket(zmq.PUSH) for _ in range(2)]
    for sender in senders:
        sender.connect(f"tcp://{source.address}")
    for number in numbers(300):
        for name, sender in zip((b"a", b"b"), senders, strict=True):
            sender.send(name + number)
    found = [data for _, data in events(topic, 600)]
    for name in (b"a", b"b"):
        assert [data[1:] for data in found if data[:1] == name] == numbers(300)


def test_a_receiver_that_asks_is_answered(
    server: Server, topic: thalweg.Topic, start: Start, context: Context
) -> None:
    sink = start("sink", "zmq-push://127.0.0.1:0", "frames", server, "--name", "out", "--bind", "--data-only")
    source = start("source", "zmq-pull://127.0.0.1:0", "frames", server, "--bind")
    receiver, sender = context.socket(zmq.PULL), context.socket(zmq.PUSH)
    for one, address in ((receiver, sink.address), (sender, source.address)):
        one.setsockopt(zmq.HEARTBEAT_IVL, 50)
        one.setsockopt(zmq.HEARTBEAT_TIMEOUT, 1000)
        one.connect(f"tcp://{address}")
    # A receiver that gets no answer connects again after its timeout.
    for end in (sink, source):
        end.until(lambda said: said["connections"] == 1)
        for _ in range(10):
            assert end.said()["connections"] == 1
        assert "gone" not in end.told()
    sender.send(b"and messages pass")
    assert receiver.recv() == b"and messages pass"


@pytest.mark.parametrize("address", ["zmq-pull://0.0.0.0:0", "sp-pull://[::]:0"])
def test_other_hosts_reach_none_unless_it_is_said(server: Server, topic: thalweg.Topic, address: str) -> None:
    command = [thalweg.executable(), "relay", "source", address, "frames", "--to", str(server.group_file), "--bind"]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ran.returncode == 2
    assert "--insecure-listen allows it" in ran.stderr
    allowed = End("source", address, "frames", server, "--bind", "--insecure-listen")
    assert "warning: at " in allowed.told()
    assert allowed.end() == 0
    allowed.kill()


def test_other_hosts_are_not_dialled_unless_it_is_said(server: Server, topic: thalweg.Topic) -> None:
    address = "zmq-push://192.0.2.1:9"
    command = [thalweg.executable(), "relay", "sink", address, "frames", "--from", str(server.group_file)]
    command += ["--name", "out"]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ran.returncode == 2
    assert "--insecure-connect allows it" in ran.stderr
    allowed = End("sink", address, "frames", server, "--name", "out", "--insecure-connect")
    assert "warning: at " in allowed.told()
    assert allowed.end() == 0
    allowed.kill()


def until_closed(stranger: socket.socket) -> None:
    """Reads to the end, which may be a reset."""
    try:
        while stranger.recv(4096):
            pass
    except ConnectionResetError:
        pass


def test_who_speaks_something_else_is_let_go(
    server: Server, topic: thalweg.Topic, start: Start, context: Context
) -> None:
    source = start("source", "zmq-pull://127.0.0.1:0", "frames", server, "--bind")
    other = start("source", "sp-pull://127.0.0.1:0", "frames", server, "--bind")
    for end, told in ((source, "it does not speak ZMTP"), (other, "it does not speak SP")):
        host, port = end.address.rsplit(":", 1)
        with socket.create_connection((host, int(port))) as stranger:
            stranger.sendall(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n" + bytes(64))
            until_closed(stranger)
        end.until_told(told)
    # A socket of another type, and one that encrypts.
    def connected(kind: int, **options: bytes) -> zmq.Socket[bytes]:
        wrong = context.socket(kind)
        for name, value in options.items():
            setattr(wrong, name, value)
        wrong.connect(f"tcp://{source.address}")
        return wrong

    source.until_one_is_refused('the type "SUB"', lambda: connected(zmq.SUB))
    source.until_one_is_refused('the type "PULL"', lambda: connected(zmq.PULL))
    public, secret = zmq.curve_keypair()
    curve = {"curve_publickey": public, "curve_secretkey": secret, "curve_serverkey": public}
    source.until_one_is_refused("CURVE", lambda: connected(zmq.PUSH, **curve))
    with pynng.Pull0(dial=f"tcp://{other.address}", block_on_dial=False):
        other.until_told("it is a socket of SP's protocol 81")
    # It goes on with others.
    right = context.socket(zmq.PUSH)
    right.connect(f"tcp://{source.address}")
    right.send(b"right")
    assert events(topic, 1) == [({}, b"right")]
    assert source.end() == 1
    assert other.end() == 0
    # One that connects again and again does not fill the log.
    assert len(source.told().splitlines()) < 200


def test_wrong_arguments(server: Server, topic: thalweg.Topic) -> None:
    for way, address, at in (
        ("source", "zmq-push://127.0.0.1:1", "--to"),
        ("sink", "sp-pull://127.0.0.1:1", "--from"),
        ("source", "tcp://127.0.0.1:1", "--to"),
    ):
        command = [thalweg.executable(), "relay", way, address, "frames", at, str(server.group_file)]
        command += ["--name", "out"] if way == "sink" else []
        assert subprocess.run(command, capture_output=True, check=False).returncode == 2


def test_an_end_in_a_flood_stores_what_was_read(
    server: Server, topic: thalweg.Topic, start: Start, context: Context
) -> None:
    source = start("source", "zmq-pull://127.0.0.1:0", "frames", server, "--bind")
    sender = context.socket(zmq.PUSH)
    sender.connect(f"tcp://{source.address}")
    for number in range(20_000):
        sender.send(number.to_bytes(4, "big"))
        if number == 5_000:
            source.until(lambda said: said["events"] > 100)
    count = source.end()
    assert count > 100
    # The first ones, each once, and no more than it said.
    found = [data for _, data in events(topic, count)]
    assert found == numbers(count)
    with topic.consumer("more", start="beginning") as consumer:
        total = 0
        while consumer.pull(timeout=0.2) is not None:
            total += 1
    assert total == count
