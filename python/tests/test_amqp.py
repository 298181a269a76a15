"""Programs that are written for RabbitMQ, at `thalweg serve --amqp`: what they rely on, and what native programs see of it."""

from __future__ import annotations

import json
import os
import socket
import ssl
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import thalweg

pika = pytest.importorskip("pika")

PERSISTENT = pika.BasicProperties(delivery_mode=2)


class Broker:
    """A server that listens for AMQP."""

    def __init__(self, directory: Path, address: str = "tcp://127.0.0.1:0", listen: str | None = None) -> None:
        self.directory = directory
        self.options = ["--amqp", address]
        if listen is not None:
            self.options += ["--listen", listen, "--no-unix-socket"]
        self.group_file = directory / "thalweg.json"
        self.start()

    def start(self) -> None:
        command = [thalweg.executable(), "serve", "--directory", str(self.directory / "data")]
        command += ["--group-file", str(self.group_file), *self.options, "--json"]
        with (self.directory / "server.log").open("ab") as log:
            self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log)
        assert self.process.stdout is not None
        ready = json.loads(self.process.stdout.readline())
        self.port = int(ready["amqp"][0].rpartition(":")[2])
        self.token = json.loads(self.group_file.read_text())["token"]

    def kill(self) -> None:
        """Ends it as a crash does."""
        self.process.kill()
        self.process.wait()

    def stop(self) -> None:
        self.process.terminate()
        try:
            assert self.process.wait(60) == 0
        finally:
            self.process.kill()

    def parameters(self, password: str | None = None, **more: object) -> pika.ConnectionParameters:
        login = pika.PlainCredentials("anybody", self.token if password is None else password)
        return pika.ConnectionParameters("127.0.0.1", self.port, "/", login, **more)

    def connect(self, password: str | None = None, **more: object) -> pika.BlockingConnection:
        return pika.BlockingConnection(self.parameters(password, **more))

    def driver(self) -> thalweg.Driver:
        return thalweg.Driver(self.group_file, connect_timeout=60.0)


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    broker = Broker(tmp_path)
    yield broker
    if broker.process.poll() is None:
        broker.stop()


@pytest.fixture
def connection(broker: Broker) -> Iterator[pika.BlockingConnection]:
    connection = broker.connect()
    yield connection
    if connection.is_open:
        connection.close()


def confirming(connection: pika.BlockingConnection) -> pika.channel.Channel:
    channel = connection.channel()
    channel.confirm_delivery()
    return channel


def publish(channel: pika.channel.Channel, queue: str, *bodies: bytes) -> None:
    for body in bodies:
        channel.basic_publish("", queue, body, PERSISTENT)


def take(channel: pika.channel.Channel, queue: str) -> list[bytes]:
    """All that is ready, acknowledged."""
    bodies = []
    while True:
        method, _, body = channel.basic_get(queue, auto_ack=True)
        if method is None:
            return bodies
        bodies.append(body)


def until(connection: pika.BlockingConnection, done: Callable[[], object]) -> None:
    """Lets a connection work until something is so."""
    while not done():
        connection.process_data_events(time_limit=1)


def refused(code: int, act: Callable[[], object]) -> None:
    """The channel, or the connection, is closed with this code."""
    with pytest.raises((pika.exceptions.ChannelClosedByBroker, pika.exceptions.ConnectionClosedByBroker)) as error:
        act()
    assert error.value.reply_code == code


def message(queue: str) -> list[pika.frame.Frame]:
    """A message of one byte, on channel 1."""
    publish = pika.spec.Basic.Publish(routing_key=queue)
    return [pika.frame.Method(1, publish), pika.frame.Header(1, 1, PERSISTENT), pika.frame.Body(1, b"x")]


def in_one_write(broker: Broker, frames: list[pika.frame.Frame], last: pika.frame.Frame) -> bytes:
    """What the server answers to a client that sends all of these at once, until this is the last of it."""
    spec, method = pika.spec, pika.frame.Method
    login = spec.Connection.StartOk({}, "PLAIN", f"\0anybody\0{broker.token}", "en_US")
    opening = [method(0, one) for one in (login, spec.Connection.TuneOk(7, 8192, 0), spec.Connection.Open("/"))]
    opening.append(method(1, spec.Channel.Open()))
    answers = b""
    with socket.create_connection(("127.0.0.1", broker.port)) as client:
        client.sendall(b"AMQP\0\0\x09\x01" + b"".join(one.marshal() for one in [*opening, *frames]))
        while not answers.endswith(last.marshal()):
            answer = client.recv(1 << 16)
            assert answer, answers
            answers += answer
    return answers


def test_what_was_confirmed_survives_a_kill(broker: Broker) -> None:
    channel = confirming(broker.connect())
    channel.exchange_declare("runs", "topic", durable=True)
    channel.queue_declare("all", durable=True)
    channel.queue_bind("all", "runs", "run.#")
    channel.queue_declare("passing")
    for number in range(200):
        channel.basic_publish("runs", f"run.{number}", b"%d" % number, PERSISTENT)
    broker.kill()
    broker.start()
    channel = confirming(broker.connect())
    assert channel.queue_declare("all", passive=True).method.message_count == 200
    # The binding is there as well, and what is not durable is not.
    channel.basic_publish("runs", "run.last", b"200", PERSISTENT)
    assert [int(body) for body in take(channel, "all")] == list(range(201))
    refused(404, lambda: channel.queue_declare("passing", passive=True))


def test_properties_come_back_as_they_went(connection: pika.BlockingConnection) -> None:
    channel = confirming(connection)
    channel.queue_declare("q")
    headers = {"n": 1, "text": "a", "list": [1, 2], "table": {"x": True}, "none": None}
    sent = pika.BasicProperties(
        content_type="text/plain", headers=headers, correlation_id="c", reply_to="r", priority=3, timestamp=7, type="t"
    )
    channel.basic_publish("", "q", b"body", sent)
    method, properties, body = channel.basic_get("q", auto_ack=True)
    assert (method.exchange, method.routing_key, method.redelivered) == ("", "q", False)
    assert body == b"body"
    assert properties == sent
    channel.basic_publish("", "q", b"")
    assert take(channel, "q") == [b""]
    large = os.urandom(5 << 20)
    channel.basic_publish("", "q", large)
    assert take(channel, "q") == [large]


@pytest.mark.parametrize("password", ["", "guest", "ab" * 32, "thalweg-token-1:none"])
def test_a_password_that_is_none_lets_nobody_in(broker: Broker, password: str) -> None:
    with pytest.raises(pika.exceptions.ProbableAuthenticationError):
        broker.connect(password)
    broker.connect().close()


def test_a_token_allows_what_it_says(broker: Broker) -> None:
    def token(verbs: str) -> str:
        command = [thalweg.executable(), "token", "new", "--directory", str(broker.directory / "data")]
        command += ["--project", "p", "--can", verbs, "--for", "1h"]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()

    def enter(secret: str) -> pika.BlockingConnection:
        # Who signs tokens, the server finds by itself, a little later.
        while True:
            try:
                return broker.connect(secret)
            except pika.exceptions.ProbableAuthenticationError:
                pass

    channel = confirming(enter(token("read,write,manage")))
    channel.queue_declare("q", durable=True)
    publish(channel, "q", b"1")
    reader = enter(token("read"))
    channel = reader.channel()
    # One that is there may be declared again.
    channel.queue_declare("q", durable=True)
    assert take(channel, "q") == [b"1"]
    refused(403, lambda: channel.queue_declare("new"))
    refused(403, lambda: reader.channel().queue_delete("q"))
    refused(403, lambda: reader.channel().exchange_declare("e", "topic"))
    refused(403, lambda: publish(confirming(reader), "q", b"2"))
    # Other namespaces have queues of their own.
    refused(404, lambda: broker.connect().channel().queue_declare("q", passive=True))


def test_what_is_no_amqp_costs_nothing(broker: Broker) -> None:
    for said in (b"GET / HTTP/1.1\r\n\r\n", b"AMQP\x01\x01\x00\x09", os.urandom(1000)):
        with socket.create_connection(("127.0.0.1", broker.port)) as stranger:
            stranger.sendall(said)
            # The header of what is spoken here, and the end.
            assert stranger.recv(8) == b"AMQP\x00\x00\x09\x01"
    halves = [socket.create_connection(("127.0.0.1", broker.port)) for _ in range(20)]
    for half in halves:
        half.sendall(b"AMQP\x00\x00\x09\x01\x01\x00\x00\x00\xff")
    channel = broker.connect().channel()
    channel.queue_declare("q")
    for half in halves:
        half.close()


def test_exchanges_route(connection: pika.BlockingConnection) -> None:
    channel = confirming(connection)
    queues = {}
    for kind in ("direct", "fanout", "topic", "headers"):
        channel.exchange_declare(kind, kind)
        queues[kind] = channel.queue_declare("", exclusive=True).method.queue
    channel.queue_bind(queues["direct"], "direct", "a")
    channel.queue_bind(queues["fanout"], "fanout")
    channel.queue_bind(queues["topic"], "topic", "a.*.#")
    channel.queue_bind(queues["headers"], "headers", arguments={"x-match": "all", "n": 1})
    channel.exchange_bind("fanout", "direct", "a")
    channel.basic_publish("direct", "a", b"direct")
    channel.basic_publish("topic", "a.b.c", b"topic")
    channel.basic_publish("headers", "", b"headers", pika.BasicProperties(headers={"n": 1}))
    assert take(channel, queues["direct"]) == [b"direct"]
    assert take(channel, queues["fanout"]) == [b"direct"]
    assert take(channel, queues["topic"]) == [b"topic"]
    assert take(channel, queues["headers"]) == [b"headers"]
    channel.queue_unbind(queues["direct"], "direct", "a")
    channel.exchange_unbind("fanout", "direct", "a")
    with pytest.raises(pika.exceptions.UnroutableError):
        channel.basic_publish("direct", "a", b"nowhere", mandatory=True)


def test_consumers_have_turns_by_message(broker: Broker, connection: pika.BlockingConnection) -> None:
    channel = connection.channel()
    channel.queue_declare("q")
    got: list[list[bytes]] = [[], [], []]
    for bodies in got:
        channel.basic_consume("q", lambda *all, bodies=bodies: bodies.append(all[3]), auto_ack=True)
    publish(confirming(broker.connect()), "q", *(b"%d" % number for number in range(30)))
    until(connection, lambda: sum(map(len, got)) == 30)
    assert [len(bodies) for bodies in got] == [10, 10, 10]


def test_a_consumer_has_no_more_than_its_prefetch_count(connection: pika.BlockingConnection) -> None:
    channel = confirming(connection)
    channel.queue_declare("q")
    publish(channel, "q", *(b"%d" % number for number in range(10)))
    channel.basic_qos(prefetch_count=3)
    got = []
    channel.basic_consume("q", lambda *all: got.append(all))
    until(connection, lambda: len(got) == 3)
    assert channel.queue_declare("q", passive=True).method.message_count == 7
    channel.basic_ack(got[1][1].delivery_tag, multiple=True)
    until(connection, lambda: len(got) == 5)
    assert [all[3] for all in got] == [b"0", b"1", b"2", b"3", b"4"]


def test_what_is_given_back_comes_first_and_is_marked(connection: pika.BlockingConnection) -> None:
    channel = confirming(connection)
    channel.queue_declare("q")
    publish(channel, "q", b"0", b"1", b"2")
    method, _, body = channel.basic_get("q")
    assert (body, method.redelivered) == (b"0", False)
    channel.basic_nack(method.delivery_tag, requeue=True)
    method, _, body = channel.basic_get("q")
    assert (body, method.redelivered) == (b"0", True)
    channel.basic_reject(method.delivery_tag, requeue=False)
    assert channel.basic_get("q")[2] == b"1"
    assert channel.basic_get("q")[2] == b"2"
    # What a channel has when it ends is others'.
    channel.close()
    channel = connection.channel()
    method, _, body = channel.basic_get("q", auto_ack=True)
    assert (body, method.redelivered) == (b"1", True)
    assert take(channel, "q") == [b"2"]
    refused(406, lambda: (channel.basic_ack(77), channel.queue_declare("q")))


def test_messages_are_counted_purged_and_deleted(connection: pika.BlockingConnection) -> None:
    channel = confirming(connection)
    channel.queue_declare("q")
    publish(channel, "q", *([b"x"] * 1000))
    assert channel.queue_declare("q", passive=True).method.message_count == 1000
    assert channel.queue_purge("q").method.message_count == 1000
    assert channel.queue_declare("q", passive=True).method.message_count == 0
    publish(channel, "q", b"x")
    refused(406, lambda: channel.queue_delete("q", if_empty=True))
    channel = connection.channel()
    assert channel.queue_delete("q").method.message_count == 1
    refused(404, lambda: channel.queue_declare("q", passive=True))


def test_what_was_published_is_there_for_what_is_asked_next(connection: pika.BlockingConnection) -> None:
    channel = connection.channel()
    # No confirms, and each time a queue that nobody has written to yet.
    for number in range(20):
        queue = f"q{number}"
        channel.queue_declare(queue)
        channel.basic_publish("", queue, b"x")
        if number % 2:
            assert channel.basic_get(queue, auto_ack=True)[2] == b"x"
            channel.basic_publish("", queue, b"y")
        assert channel.queue_declare(queue, passive=True).method.message_count == 1
        channel.basic_publish("", queue, b"z")
        assert channel.queue_purge(queue).method.message_count == 2
        channel.basic_publish("", queue, b"z")
        assert channel.queue_delete(queue).method.message_count == 1


@pytest.mark.parametrize("durable", [True, False])
def test_what_was_published_before_a_close_is_kept(broker: Broker, durable: bool) -> None:
    channel = broker.connect().channel()
    channel.queue_declare("q", durable=durable)
    # As clients do that close no channel before: the server has the messages and their end at once.
    close, closed = pika.spec.Connection.Close(200, "", 0, 0), pika.spec.Connection.CloseOk()
    in_one_write(broker, [*100 * message("q"), pika.frame.Method(0, close)], pika.frame.Method(0, closed))
    assert channel.queue_declare("q", passive=True).method.message_count == 100


def test_what_goes_back_is_counted_at_once(broker: Broker, connection: pika.BlockingConnection) -> None:
    channel = confirming(connection)
    channel.queue_declare("q")
    # More than the server keeps of what channels have: the rest goes back to where it was.
    publish(channel, "q", *([bytes(4 << 20)] * 10))
    counts: list[int] = []

    def opened(channel: pika.channel.Channel) -> None:
        taken: list[int] = []

        def take(channel: pika.channel.Channel, method: pika.spec.Basic.Deliver, *_: object) -> None:
            taken.append(method.delivery_tag)
            if len(taken) == 10:
                channel.basic_cancel("taker", callback=give_back)

        def give_back(_: object) -> None:
            channel.basic_nack(0, multiple=True)
            channel.queue_declare("q", passive=True, callback=counted)

        def counted(declared: pika.frame.Method) -> None:
            counts.append(declared.method.message_count)
            channel.connection.close()

        channel.basic_consume("q", take, consumer_tag="taker")

    other = pika.SelectConnection(
        broker.parameters(),
        on_open_callback=lambda connection: connection.channel(on_open_callback=opened),
        on_close_callback=lambda connection, _: connection.ioloop.stop(),
    )
    other.ioloop.start()
    assert counts == [10]


def test_dead_letters_say_where_they_died(connection: pika.BlockingConnection) -> None:
    channel = confirming(connection)
    channel.queue_declare("dead")
    letters = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"}
    channel.queue_declare("short-lived", arguments={"x-message-ttl": 100, **letters})
    channel.queue_declare("short", arguments={"x-max-length": 2, **letters})

    def letter() -> tuple[bytes, list[dict[str, object]]]:
        while True:
            method, properties, body = channel.basic_get("dead", auto_ack=True)
            if method is not None:
                return body, properties.headers["x-death"]

    publish(channel, "short-lived", b"late")
    body, deaths = letter()
    assert (body, deaths[0]["reason"], deaths[0]["queue"], deaths[0]["count"]) == (b"late", "expired", "short-lived", 1)
    publish(channel, "short", b"1", b"2", b"3")
    body, deaths = letter()
    assert (body, deaths[0]["reason"]) == (b"1", "maxlen")
    method, _, body = channel.basic_get("short")
    channel.basic_reject(method.delivery_tag, requeue=False)
    assert letter()[0] == body == b"2"
    assert take(channel, "short") == [b"3"]


def test_a_dead_letter_is_there_for_what_is_asked_next(broker: Broker, connection: pika.BlockingConnection) -> None:
    channel = connection.channel()
    channel.queue_declare("dead")
    channel.queue_declare("q", arguments={"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"})
    asked = [pika.spec.Basic.Get(queue="q"), pika.spec.Basic.Reject(1, requeue=False), pika.spec.Basic.Get(queue="dead")]
    # A third one has nothing, which is said all the same.
    asked.append(pika.spec.Basic.Get(queue="dead"))
    empty = pika.frame.Method(1, pika.spec.Basic.GetEmpty())
    answers = in_one_write(broker, message("q") + [pika.frame.Method(1, one) for one in asked], empty)
    assert answers.count(pika.frame.Body(1, b"x").marshal()) == 2
    assert answers.count(empty.marshal()) == 1


def test_a_full_queue_that_refuses_says_so(connection: pika.BlockingConnection) -> None:
    channel = confirming(connection)
    channel.queue_declare("q", arguments={"x-max-length": 2, "x-overflow": "reject-publish"})
    publish(channel, "q", b"1", b"2")
    with pytest.raises(pika.exceptions.NackError):
        publish(channel, "q", b"3")
    assert take(channel, "q") == [b"1", b"2"]
    publish(channel, "q", b"4")


def test_replies_come_without_a_queue(broker: Broker, connection: pika.BlockingConnection) -> None:
    channel = connection.channel()
    channel.queue_declare("asked")
    got: list[bytes] = []
    channel.basic_consume("amq.rabbitmq.reply-to", lambda *all: got.append(all[3]), auto_ack=True)
    channel.basic_publish("", "asked", b"?", pika.BasicProperties(reply_to="amq.rabbitmq.reply-to"))
    other = broker.connect().channel()
    method = None
    while method is None:
        method, properties, _ = other.basic_get("asked", auto_ack=True)
    other.basic_publish("", properties.reply_to, b"!")
    until(connection, lambda: got)
    assert got == [b"!"]


def test_queues_go_with_who_has_them(broker: Broker, connection: pika.BlockingConnection) -> None:
    owner = broker.connect()
    owner.channel().queue_declare("own", exclusive=True)
    refused(405, lambda: connection.channel().queue_declare("own"))
    owner.close()
    connection.channel().queue_declare("own")
    channel = connection.channel()
    channel.queue_declare("used", auto_delete=True)
    channel.basic_cancel(channel.basic_consume("used", lambda *_: None))
    refused(404, lambda: channel.queue_declare("used", passive=True))
    channel = connection.channel()
    channel.queue_declare("unused", arguments={"x-expires": 100})

    def is_there() -> bool:
        try:
            connection.channel().queue_declare("unused", passive=True)
        except pika.exceptions.ChannelClosedByBroker:
            return False
        # Being asked for is a use: a while without one.
        connection.sleep(0.3)
        return True

    while is_there():
        pass


def test_a_consumer_hears_that_its_queue_goes(broker: Broker, connection: pika.BlockingConnection) -> None:
    channel = connection.channel()
    channel.queue_declare("q")
    told: list[object] = []
    channel.add_on_cancel_callback(told.append)
    channel.basic_consume("q", lambda *_: None)
    broker.connect().channel().queue_delete("q")
    until(connection, lambda: told)


def test_a_deletion_is_answered_before_consumers_of_the_same_channel_are_told(broker: Broker) -> None:
    said: list[str] = []

    def declare(channel: pika.channel.Channel) -> None:
        channel.add_on_cancel_callback(lambda _: (said.append("cancel"), channel.connection.close()))
        channel.queue_declare("q", callback=lambda _: consume(channel))

    def consume(channel: pika.channel.Channel) -> None:
        channel.basic_consume("q", lambda *_: None, callback=lambda _: delete(channel))

    def delete(channel: pika.channel.Channel) -> None:
        channel.queue_delete("q", callback=lambda _: said.append("delete-ok"))

    connection = pika.SelectConnection(
        broker.parameters(),
        on_open_callback=lambda connection: connection.channel(on_open_callback=declare),
        on_close_callback=lambda connection, _: connection.ioloop.stop(),
    )
    connection.ioloop.start()
    assert said == ["delete-ok", "cancel"]


def test_what_is_not_there_is_refused(broker: Broker) -> None:
    refused(540, lambda: broker.connect().channel().tx_select())
    for arguments in ({"x-max-priority": 3}, {"x-queue-type": "stream"}):
        connection = broker.connect()
        refused(406, lambda: connection.channel().queue_declare("q", durable=True, arguments=arguments))


def test_what_is_not_there_is_not_bound_and_goes(connection: pika.BlockingConnection) -> None:
    channel = connection.channel()
    channel.queue_unbind("none", "amq.direct", "k")
    channel.exchange_unbind("none", "amq.direct", "k")
    assert channel.queue_delete("none").method.message_count == 0
    channel.exchange_delete("none")
    channel.queue_declare("q")
    channel.queue_unbind("q", "none", "k")
    channel.queue_unbind("q", "amq.direct", "k")
    refused(404, lambda: channel.queue_bind("none", "amq.direct", "k"))


def test_native_programs_read_and_write_the_same_queue(broker: Broker, connection: pika.BlockingConnection) -> None:
    channel = confirming(connection)
    channel.queue_declare("jobs", durable=True)
    channel.basic_publish("", "jobs", b"from amqp", pika.BasicProperties(headers={"run": 7}, delivery_mode=2))
    with broker.driver() as driver:
        [name] = [topic for topic in (one.name for one in driver.list_topics()) if topic.startswith("jobs.amqp-")]
        topic = driver.open_topic(name)
        with topic.consumer("reader", data=True) as consumer:
            event = consumer.pull(timeout=60)
            assert event is not None
            assert event.metadata["amqp"]["headers"] == {"run": 7}
            assert event.metadata["amqp"]["routing_key"] == "jobs"
            assert bytes(event.data) == b"from amqp"
        with topic.producer() as producer:
            producer.push({"run": 8}, b"from thalweg").result()
            # Large data lies outside of its batch.
            producer.push({"run": 9}, bytes(3 << 20)).result()
    assert channel.basic_get("jobs", auto_ack=True)[2] == b"from amqp"
    _, properties, body = channel.basic_get("jobs", auto_ack=True)
    assert (properties.headers, body) == ({"run": 8}, b"from thalweg")
    assert channel.basic_get("jobs", auto_ack=True)[2] == bytes(3 << 20)


@pytest.mark.parametrize("scheme", ["tcp", "tls"])
def test_one_port_is_for_programs_of_both_kinds(tmp_path: Path, scheme: str) -> None:
    broker = Broker(tmp_path, "listen", f"{scheme}://127.0.0.1:0")
    try:
        options = {}
        if scheme == "tls":
            context = ssl.create_default_context()
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
            options["ssl_options"] = pika.SSLOptions(context, "localhost")
        # One who says nothing holds up nobody.
        with socket.create_connection(("127.0.0.1", broker.port)), broker.driver() as driver:
            topic = driver.create_topic("t")
            with topic.producer() as producer:
                producer.push({"n": 1}, b"x" * 300_000)
            connection = broker.connect(**options)
            channel = confirming(connection)
            channel.queue_declare("jobs", durable=True)
            channel.basic_publish("", "jobs", b"y" * 300_000, PERSISTENT)
            assert channel.basic_get("jobs", auto_ack=True)[2] == b"y" * 300_000
            with topic.consumer("reader", data=True) as consumer:
                event = consumer.pull(timeout=60)
                assert event is not None
                assert bytes(event.data) == b"x" * 300_000
            connection.close()
        ports = {int(address.rpartition(":")[2]) for address in json.loads(broker.group_file.read_text())["endpoints"]}
        assert ports == {broker.port}
    finally:
        broker.stop()
