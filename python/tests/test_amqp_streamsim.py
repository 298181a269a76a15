"""What the published simulator of streaming (StreamSim) asks of a broker, point by point, with the settings that it was published with.

Its three roles are programs of Go. What each of them does on AMQP is done here with pika.
"""

from __future__ import annotations

import ssl
import struct
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from test_amqp import Broker, broker, confirming, connection, refused, until

pika = pytest.importorskip("pika")

__all__ = ["broker", "connection"]

PRODUCERS = CONSUMERS = 8
MESSAGES_MAX = 131_072
TRANSIENT = pika.BasicProperties(delivery_mode=1)


def arguments(messages: int) -> dict[str, object]:
    """Those of a queue of data."""
    return {"x-queue-type": "classic", "x-max-length": messages, "x-overflow": "reject-publish"}


def declare_all(channel: pika.channel.Channel) -> None:
    """What every role declares before anything else: all the same, and without a wait for anybody."""
    channel.exchange_declare("prod_replyEx_0", "direct", durable=True)
    channel.exchange_declare("broadcastEx_0", "fanout", durable=True)
    # An integer of 64 bits; Go's int goes as one of 32.
    channel.queue_declare("result_Q_0", arguments={"x-max-length": 2 * CONSUMERS})
    for name, count in (("prodQ_assignQ_0", PRODUCERS), ("consQ_assignQ_0", CONSUMERS), ("cons_msgcountQ_0", CONSUMERS)):
        channel.queue_declare(name, arguments={"x-max-length": count})
    for number in range(2):
        channel.queue_declare(f"throughputQ_{number}", arguments=arguments(MESSAGES_MAX))


class Role:
    """A process: one connection, a channel, what came to it."""

    def __init__(self, broker: Broker, assignments: str | None = None) -> None:
        self.connection = broker.connect()
        self.channel = self.connection.channel()
        declare_all(self.channel)
        self.assigned: list[int] = []
        if assignments is not None:
            self.channel.basic_qos(prefetch_count=1)
            self.channel.basic_consume(assignments, self.on_assigned, auto_ack=True)

    def on_assigned(self, _channel: object, method: pika.spec.Basic.Deliver, _properties: object, body: bytes) -> None:
        assert method.delivery_tag == 1
        self.assigned.append(struct.unpack("<Q", body)[0])


class Consumer(Role):
    """Acknowledges every 64th delivery, and all before it."""

    BATCH = 64

    def __init__(self, broker: Broker) -> None:
        super().__init__(broker, "consQ_assignQ_0")
        self.came: list[bytes] = []
        self.redelivered: list[bytes] = []

    def consume(self, queue: str, prefetch: int = BATCH) -> None:
        self.channel.basic_qos(prefetch_count=prefetch)
        self.tag = self.channel.basic_consume(queue, self.on_message)

    def on_message(
        self, channel: pika.channel.Channel, method: pika.spec.Basic.Deliver, _properties: object, body: bytes
    ) -> None:
        self.came.append(body)
        if method.redelivered:
            self.redelivered.append(body)
        # The tag of the assignment, which was acknowledged by itself, is counted too.
        assert method.delivery_tag == len(self.came) + 1
        if len(self.came) % self.BATCH == 0:
            channel.basic_ack(method.delivery_tag, multiple=True)


@pytest.fixture
def roles(broker: Broker) -> Iterator[list[Role]]:
    roles: list[Role] = []
    yield roles
    for role in roles:
        if role.connection.is_open:
            role.connection.close()


def assign(broker: Broker, roles: list[Role], queue: str) -> None:
    """The coordinator gives each process the number of its queue."""
    coordinator = Role(broker)
    for number in range(len(roles)):
        coordinator.channel.basic_publish("", queue, struct.pack("<Q", number * 2 // len(roles)), TRANSIENT)
    for role in roles:
        until(role.connection, lambda role=role: role.assigned)
    coordinator.connection.close()


def published(broker: Broker, queue: str, bodies: list[bytes]) -> tuple[int, int]:
    """A producer that waits for its confirmations. How many messages were taken and refused."""
    connection = broker.connect()
    channel = connection.channel()
    channel.confirm_delivery()
    counts = [0, 0]
    for body in bodies:
        try:
            channel.basic_publish("", queue, body, TRANSIENT)
            counts[0] += 1
        except pika.exceptions.NackError:
            counts[1] += 1
    connection.close()
    return counts[0], counts[1]


def test_each_of_many_consumers_that_never_cancel_gets_one_assignment(broker: Broker, roles: list[Role]) -> None:
    roles += [Role(broker, "consQ_assignQ_0") for _ in range(CONSUMERS)]
    assign(broker, roles, "consQ_assignQ_0")
    assert [len(role.assigned) for role in roles] == [1] * CONSUMERS
    assert sorted(role.assigned[0] for role in roles) == [0] * 4 + [1] * 4


def test_a_prefetch_count_does_not_hold_who_acknowledges_nothing(broker: Broker, roles: list[Role]) -> None:
    roles.append(Role(broker, "prodQ_assignQ_0"))
    role = roles[0]
    role.on_assigned = lambda *_: None  # type: ignore[method-assign]
    came: list[bytes] = []
    role.channel.basic_consume("throughputQ_0", lambda *message: came.append(message[3]), auto_ack=True)
    published(broker, "throughputQ_0", [b"%d" % number for number in range(100)])
    until(role.connection, lambda: len(came) == 100)


def test_acknowledgements_reach_across_a_tag_that_was_never_to_be_acknowledged(broker: Broker, roles: list[Role]) -> None:
    consumers = [Consumer(broker), Consumer(broker)]
    roles += consumers
    assign(broker, roles, "consQ_assignQ_0")
    for consumer in consumers:
        consumer.consume("throughputQ_0")
    bodies = [b"%d" % number for number in range(256)]
    assert published(broker, "throughputQ_0", bodies) == (256, 0)
    while sum(len(consumer.came) for consumer in consumers) < len(bodies):
        for consumer in consumers:
            consumer.connection.process_data_events(time_limit=0.05)
    # Every second one goes to each, until one is behind by its prefetch count.
    for consumer in consumers:
        first = int(consumer.came[0])
        assert consumer.came[:64] == bodies[first : first + 128 : 2]
    assert sorted(consumers[0].came + consumers[1].came) == sorted(bodies)
    for consumer in consumers:
        consumer.connection.close()
    roles.append(Role(broker))
    left = sum(len(consumer.came) % Consumer.BATCH for consumer in consumers)
    assert roles[-1].channel.queue_declare("throughputQ_0", passive=True).method.message_count == left


def test_what_a_consumer_leaves_without_acknowledgement_reaches_others_first(broker: Broker, roles: list[Role]) -> None:
    leaving, staying = Consumer(broker), Consumer(broker)
    roles += [leaving, staying]
    assign(broker, roles, "consQ_assignQ_0")
    leaving.consume("throughputQ_0")
    bodies = [b"%d" % number for number in range(192)]
    published(broker, "throughputQ_0", bodies[:104])
    # 64 of them are acknowledged, 40 are not.
    until(leaving.connection, lambda: len(leaving.came) == 104)
    leaving.channel.basic_publish("", "cons_msgcountQ_0", struct.pack("<Q", 104), TRANSIENT)
    leaving.channel.basic_publish("", "result_Q_0", b"%f" % 1234.5, TRANSIENT)
    leaving.channel.basic_cancel(leaving.tag)
    leaving.connection.close()
    published(broker, "throughputQ_0", bodies[104:])
    staying.consume("throughputQ_0")
    until(staying.connection, lambda: len(staying.came) == 128)
    assert staying.came == bodies[64:]
    assert staying.redelivered == bodies[64:104]
    channel = staying.connection.channel()
    assert struct.unpack("<Q", channel.basic_get("cons_msgcountQ_0", auto_ack=True)[2]) == (104,)
    assert channel.basic_get("result_Q_0", auto_ack=True)[2] == b"1234.500000"


def test_a_full_queue_refuses_and_the_producer_goes_on(broker: Broker, roles: list[Role]) -> None:
    roles.append(Role(broker))
    roles[0].channel.queue_declare("lat_requestQ_0", arguments=arguments(100))
    bodies = [b"%d" % number for number in range(128)]
    assert published(broker, "lat_requestQ_0", bodies) == (100, 28)
    assert roles[0].channel.queue_declare("lat_requestQ_0", passive=True).method.message_count == 100


def test_a_request_is_answered_through_the_exchange_for_replies(broker: Broker, roles: list[Role]) -> None:
    producer, consumer = Role(broker), Role(broker)
    roles += [producer, consumer]
    consumer.channel.queue_declare("lat_requestQ_1", arguments=arguments(MESSAGES_MAX))
    name = f"lat_replyQ_{uuid.uuid4().hex}"
    replies = producer.connection.channel()
    replies.queue_declare(name, exclusive=True, auto_delete=True)
    replies.queue_bind(name, "prod_replyEx_0", name)
    came: dict[str, bytes] = {}

    def on_reply(_channel: object, _method: object, properties: pika.BasicProperties, body: bytes) -> None:
        came[properties.correlation_id] = body

    replies.basic_consume(name, on_reply, auto_ack=True, exclusive=True)

    def on_request(
        channel: pika.channel.Channel,
        method: pika.spec.Basic.Deliver,
        properties: pika.BasicProperties,
        body: bytes,
    ) -> None:
        answer = pika.BasicProperties(correlation_id=properties.correlation_id, delivery_mode=1)
        channel.basic_publish("prod_replyEx_0", properties.reply_to, body, answer)
        channel.basic_ack(method.delivery_tag)

    consumer.channel.basic_qos(prefetch_count=64)
    consumer.channel.basic_consume("lat_requestQ_1", on_request)
    sent = {uuid.uuid4().hex: bytes([number]) * 1_000_021 for number in range(8)}
    for correlation, body in sent.items():
        properties = pika.BasicProperties(correlation_id=correlation, reply_to=name, delivery_mode=1)
        producer.channel.basic_publish("", "lat_requestQ_1", body, properties)
    while len(came) < len(sent):
        consumer.connection.process_data_events(time_limit=0.1)
        producer.connection.process_data_events(time_limit=0.1)
    assert came == sent


def test_a_broadcast_of_4_megabytes_reaches_all_and_is_gathered_in_one_queue(broker: Broker, roles: list[Role]) -> None:
    producer = Role(broker)
    consumers = [Role(broker) for _ in range(4)]
    roles += [producer, *consumers]
    producer.channel.queue_declare("lat_replyQ_0")
    gathered: list[bytes] = []
    producer.connection.channel().basic_consume(
        "lat_replyQ_0", lambda *message: gathered.append(message[3]), auto_ack=True
    )
    for consumer in consumers:
        name = f"lat_requestQ_{uuid.uuid4().hex}"
        consumer.channel.queue_declare(name, exclusive=True, auto_delete=True, arguments=arguments(MESSAGES_MAX))
        consumer.channel.queue_bind(name, "broadcastEx_0", name)

        def on_message(
            channel: pika.channel.Channel, method: pika.spec.Basic.Deliver, _properties: object, body: bytes
        ) -> None:
            channel.basic_publish("", "lat_replyQ_0", body, TRANSIENT)
            channel.basic_ack(method.delivery_tag)

        consumer.channel.basic_qos(prefetch_count=16)
        consumer.channel.basic_consume(name, on_message)
    bodies = [bytes([number]) * 4_000_000 for number in range(3)]
    for body in bodies:
        producer.channel.basic_publish("broadcastEx_0", "", body, TRANSIENT)
    while len(gathered) < 12:
        for role in roles:
            role.connection.process_data_events(time_limit=0.05)
    assert sorted(gathered) == sorted(bodies * 4)


def test_results_have_one_consumer(broker: Broker, roles: list[Role]) -> None:
    roles += [Role(broker), Role(broker)]
    roles[0].channel.basic_consume("result_Q_0", lambda *_: None, auto_ack=True, exclusive=True)
    refused(403, lambda: roles[1].channel.basic_consume("result_Q_0", lambda *_: None, auto_ack=True, exclusive=True))


def test_queues_stay_and_other_numbers_are_refused(broker: Broker, roles: list[Role]) -> None:
    roles.append(Role(broker))
    roles[0].connection.close()
    roles.append(Role(broker))
    channel = roles[1].connection.channel()
    refused(406, lambda: channel.queue_declare("result_Q_0", arguments={"x-max-length": 4 * CONSUMERS}))
    # The connection goes on.
    declare_all(roles[1].connection.channel())


def test_confirms_come_in_order_and_nothing_is_left(broker: Broker, roles: list[Role]) -> None:
    roles.append(Role(broker))
    channel = confirming(roles[0].connection)
    for number in range(640):
        channel.basic_publish("", f"throughputQ_{number % 2}", b"%d" % number, TRANSIENT)
    counts = [
        channel.queue_declare(f"throughputQ_{number}", passive=True).method.message_count for number in range(2)
    ]
    assert counts == [320, 320]
    for number in range(2):
        channel.queue_delete(f"throughputQ_{number}")


def test_tls_takes_a_client_that_looks_at_no_certificate(tmp_path: Path) -> None:
    broker = Broker(tmp_path, "tls://127.0.0.1:0")
    try:
        context = ssl.create_default_context()
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        connection = broker.connect(ssl_options=pika.SSLOptions(context, "localhost"))
        declare_all(connection.channel())
        connection.close()
    finally:
        broker.stop()
