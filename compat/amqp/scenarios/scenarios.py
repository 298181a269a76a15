"""What a program for RabbitMQ sees of a server: one line for each scenario, the same on every server and in every language.

``scenarios.py URL``. ``go/main.go`` and ``java/`` say the same with other clients; ``outcomes.txt`` is what RabbitMQ says. Times are not compared:
where something comes later, the program waits for it.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pika
from pika.exceptions import ChannelClosedByBroker, ConnectionClosedByBroker, NackError, UnroutableError

PERSISTENT = pika.BasicProperties(delivery_mode=2)
URL = sys.argv[1]


@contextmanager
def connected() -> Iterator[pika.BlockingConnection]:
    connection = pika.BlockingConnection(pika.URLParameters(URL))
    try:
        yield connection
    finally:
        if connection.is_open:
            connection.close()


def take(channel: pika.channel.Channel, queue: str) -> list[str]:
    """All that is ready, acknowledged; what was delivered before has a star."""
    found = []
    while True:
        method, _, body = channel.basic_get(queue)
        if method is None:
            return found
        channel.basic_ack(method.delivery_tag)
        found.append(body.decode() + "*" * method.redelivered)


def wait_for(channel: pika.channel.Channel, queue: str, count: int) -> list[str]:
    """So many messages of a queue, whenever they come."""
    found: list[str] = []
    while len(found) < count:
        found += take(channel, queue)
        channel.connection.sleep(0.01)
    return found


def code(act: Callable[[], object]) -> str:
    """How the server refuses something."""
    try:
        act()
    except (ChannelClosedByBroker, ConnectionClosedByBroker) as error:
        what = "channel" if isinstance(error, ChannelClosedByBroker) else "connection"
        return f"{what} {error.reply_code}"
    return "allowed"


def consume(channel: pika.channel.Channel, queue: str, found: list[tuple[int, str, bool]], **more: object) -> str:
    def came(_channel: object, method: pika.spec.Basic.Deliver, _properties: object, body: bytes) -> None:
        found.append((method.delivery_tag, body.decode(), method.redelivered))

    tag: str = channel.basic_consume(queue, came, **more)
    return tag


def until(connection: pika.BlockingConnection, done: Callable[[], object]) -> None:
    while not done():
        connection.process_data_events(time_limit=0.05)


def texts(found: list[tuple[int, str, bool]]) -> str:
    return " ".join(body + "*" * redelivered for _, body, redelivered in found)


# ---- scenarios


def properties_come_back() -> str:
    with connected() as connection:
        channel = connection.channel()
        queue = channel.queue_declare("", exclusive=True).method.queue
        sent = pika.BasicProperties(
            content_type="application/x",
            content_encoding="none",
            headers={"text": "a", "number": 7, "yes": True, "list": [1, "b"], "table": {"deep": -1}},
            delivery_mode=2,
            priority=3,
            correlation_id="c",
            reply_to="r",
            expiration="600000",
            message_id="m",
            timestamp=1700000000,
            type="t",
            app_id="a",
        )
        channel.basic_publish("", queue, b"body", sent)
        method, came, body = channel.basic_get(queue, auto_ack=True)
        headers = came.headers
        return (
            f"{body.decode()} {method.exchange or '-'} {came.content_type} {came.content_encoding} {headers['text']} {headers['number']} "
            f"{str(headers['yes']).lower()} {headers['list'][0]} {headers['list'][1]} {headers['table']['deep']} {came.delivery_mode} "
            f"{came.priority} {came.correlation_id} {came.reply_to} {came.expiration} {came.message_id} {came.timestamp} {came.type} {came.app_id}"
        )


def bodies_of_every_size() -> str:
    with connected() as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        channel.queue_declare("sizes", durable=True)
        lines = []
        for size in (0, 1, 8, 4088, 131064, 131065, 1 << 20, 9_000_000):
            body = bytes(number % 251 for number in range(size))
            channel.basic_publish("", "sizes", body, PERSISTENT)
            came = channel.basic_get("sizes", auto_ack=True)[2]
            lines.append(f"{len(came)}:{hashlib.sha256(came).hexdigest()[:8]}")
        channel.queue_delete("sizes")
        return " ".join(lines)


def exchanges_route() -> str:
    with connected() as connection:
        channel = connection.channel()
        for kind in ("direct", "fanout", "topic", "headers"):
            channel.exchange_declare(f"x-{kind}", kind, auto_delete=True)
        bindings: list[tuple[str, str, dict[str, object] | None]] = [
            ("x-direct", "a", None),
            ("x-fanout", "", None),
            ("x-topic", "run.*.done", None),
            ("x-topic", "run.#", None),
            ("x-topic", "#.done", None),
            ("x-headers", "", {"x-match": "all", "a": 1, "b": "two"}),
            ("x-headers", "", {"x-match": "any", "a": 1, "b": "two"}),
        ]
        queues = []
        for exchange, key, arguments in bindings:
            queue = channel.queue_declare("", exclusive=True).method.queue
            channel.queue_bind(queue, exchange, key, arguments)
            queues.append(queue)
        for key in ("a", "b", "run", "run.1", "run.1.done", "run.1.2.done", "done"):
            for exchange in ("x-direct", "x-fanout", "x-topic"):
                channel.basic_publish(exchange, key, key.encode())
        for name, headers in (("both", {"a": 1, "b": "two"}), ("one", {"a": 1}), ("none", {"c": 1})):
            channel.basic_publish("x-headers", "", name.encode(), pika.BasicProperties(headers=headers))
        return " | ".join(",".join(take(channel, queue)) for queue in queues)


def exchanges_are_bound_to_exchanges() -> str:
    with connected() as connection:
        channel = connection.channel()
        channel.exchange_declare("first", "fanout")
        channel.exchange_declare("second", "topic")
        channel.exchange_bind("second", "first")
        # A circle: a message passes each once.
        channel.exchange_bind("first", "second", "#")
        queue = channel.queue_declare("", exclusive=True).method.queue
        channel.queue_bind(queue, "second", "a.#")
        channel.queue_bind(queue, "second", "#.b")
        channel.basic_publish("first", "a.b", b"once")
        channel.basic_publish("first", "c", b"not")
        channel.exchange_unbind("second", "first")
        channel.basic_publish("first", "a.b", b"gone")
        said = ",".join(take(channel, queue))
        channel.exchange_delete("first")
        channel.exchange_delete("second")
        return said


def an_alternate_exchange_gets_what_no_queue_got() -> str:
    with connected() as connection:
        channel = connection.channel()
        channel.exchange_declare("others", "fanout")
        channel.exchange_declare("main", "direct", arguments={"alternate-exchange": "others"})
        mine = channel.queue_declare("", exclusive=True).method.queue
        rest = channel.queue_declare("", exclusive=True).method.queue
        channel.queue_bind(mine, "main", "mine")
        channel.queue_bind(rest, "others")
        channel.basic_publish("main", "mine", b"1")
        channel.basic_publish("main", "other", b"2")
        said = ",".join(take(channel, mine)) + " | " + ",".join(take(channel, rest))
        channel.exchange_delete("main")
        channel.exchange_delete("others")
        return said


def what_nobody_gets_is_returned_and_confirmed() -> str:
    with connected() as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        channel.basic_publish("", "nowhere", b"dropped")
        try:
            channel.basic_publish("", "nowhere", b"back", mandatory=True)
        except UnroutableError as error:
            message = error.messages[0]
            return f"{message.method.reply_code} {message.method.reply_text} {message.body.decode()}"
        return "not returned"


def what_is_given_back_comes_first() -> str:
    with connected() as connection:
        channel = connection.channel()
        channel.queue_declare("back", durable=True)
        for body in (b"1", b"2", b"3", b"4"):
            channel.basic_publish("", "back", body, PERSISTENT)
        tags = [channel.basic_get("back")[0].delivery_tag for _ in range(3)]
        channel.basic_ack(tags[0])
        channel.basic_nack(tags[2], multiple=True)
        after_nack = ",".join(body for body in (channel.basic_get("back")[2].decode(),))
        channel.close()
        channel = connection.channel()
        said = f"{after_nack} | {','.join(take(channel, 'back'))}"
        channel.queue_delete("back")
        return said


def recover_gives_all_back() -> str:
    with connected() as connection:
        channel = connection.channel()
        queue = channel.queue_declare("", exclusive=True).method.queue
        for body in (b"1", b"2"):
            channel.basic_publish("", queue, body)
        for _ in range(2):
            channel.basic_get(queue)
        channel.basic_recover(requeue=True)
        return ",".join(wait_for(channel, queue, 2))


def dead_letters_say_where_they_died() -> str:
    with connected() as connection:
        channel = connection.channel()
        channel.exchange_declare("dead", "direct")
        grave = channel.queue_declare("", exclusive=True).method.queue
        channel.queue_bind(grave, "dead", "other")
        arguments = {"x-dead-letter-exchange": "dead", "x-dead-letter-routing-key": "other"}
        channel.queue_declare("live", arguments=arguments | {"x-max-length": 1})
        for body in (b"1", b"2"):
            channel.basic_publish("", "live", body)
        method = channel.basic_get("live")[0]
        channel.basic_reject(method.delivery_tag, requeue=False)
        channel.queue_declare("short", arguments=arguments | {"x-message-ttl": 1})
        channel.basic_publish("", "short", b"3")
        lines = []
        while len(lines) < 3:
            method, properties, body = channel.basic_get(grave, auto_ack=True)
            if method is None:
                connection.sleep(0.01)
                continue
            death = properties.headers["x-death"][0]
            lines.append(
                f"{body.decode()} {death['reason']} {death['queue']} {death['count']} {death['exchange'] or '-'} {death['routing-keys'][0]} "
                f"{properties.headers['x-first-death-reason']} {method.exchange} {method.routing_key}"
            )
        for queue in ("live", "short"):
            channel.queue_delete(queue)
        channel.exchange_delete("dead")
        return " | ".join(sorted(lines))


def a_full_queue_drops_or_refuses() -> str:
    with connected() as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        dropping = channel.queue_declare("", exclusive=True, arguments={"x-max-length": 2}).method.queue
        refusing = channel.queue_declare(
            "", exclusive=True, arguments={"x-max-length": 2, "x-overflow": "reject-publish"}
        ).method.queue
        refused = 0
        for body in (b"1", b"2", b"3", b"4"):
            channel.basic_publish("", dropping, body)
            try:
                channel.basic_publish("", refusing, body)
            except NackError:
                refused += 1
        return f"{','.join(take(channel, dropping))} | {','.join(take(channel, refusing))} | {refused}"


def messages_expire() -> str:
    with connected() as connection:
        channel = connection.channel()
        queue = channel.queue_declare("", exclusive=True).method.queue
        # Before it has confirmed them the queue may not count them.
        channel.confirm_delivery()
        channel.basic_publish("", queue, b"short", pika.BasicProperties(expiration="1"))
        channel.basic_publish("", queue, b"long")
        while channel.queue_declare(queue, passive=True).method.message_count > 1:
            connection.sleep(0.01)
        bad = code(lambda: bad_expiration(connection))
        return f"{','.join(take(channel, queue))} | {bad}"


def bad_expiration(connection: pika.BlockingConnection) -> None:
    channel = connection.channel()
    channel.confirm_delivery()
    channel.basic_publish("", "any", b"", pika.BasicProperties(expiration="soon"))


def consumers_have_turns() -> str:
    with connected() as connection:
        channel = connection.channel()
        queue = channel.queue_declare("", exclusive=True).method.queue
        found: list[list[tuple[int, str, bool]]] = [[], [], []]
        for mine in found:
            consume(channel, queue, mine, auto_ack=True)
        for number in range(9):
            channel.basic_publish("", queue, b"%d" % number)
        until(connection, lambda: sum(map(len, found)) == 9)
        return " | ".join(sorted(texts(mine) for mine in found))


def prefetch_bounds_what_a_consumer_has() -> str:
    with connected() as connection:
        channel = connection.channel()
        queue = channel.queue_declare("", exclusive=True).method.queue
        for number in range(5):
            channel.basic_publish("", queue, b"%d" % number)
        channel.basic_qos(prefetch_count=2)
        found: list[tuple[int, str, bool]] = []
        consume(channel, queue, found)
        until(connection, lambda: len(found) == 2)
        ready = channel.queue_declare(queue, passive=True).method.message_count
        channel.basic_ack(found[1][0], multiple=True)
        until(connection, lambda: len(found) == 4)
        return f"{ready} {texts(found)} {channel.queue_declare(queue, passive=True).method.message_count}"


def priorities_of_consumers() -> str:
    with connected() as connection:
        channel = connection.channel()
        queue = channel.queue_declare("", exclusive=True).method.queue
        low: list[tuple[int, str, bool]] = []
        high: list[tuple[int, str, bool]] = []
        consume(channel, queue, low, auto_ack=True)
        channel.basic_qos(prefetch_count=2)
        consume(channel, queue, high, arguments={"x-priority": 10})
        for number in range(4):
            channel.basic_publish("", queue, b"%d" % number)
        until(connection, lambda: len(low) + len(high) == 4)
        return f"{texts(high)} | {texts(low)}"


def one_consumer_is_active() -> str:
    with connected() as connection, connected() as other:
        channel = connection.channel()
        channel.queue_declare("single", arguments={"x-single-active-consumer": True})
        first: list[tuple[int, str, bool]] = []
        second: list[tuple[int, str, bool]] = []
        consume(channel, "single", first)
        waiting = other.channel()
        consume(waiting, "single", second)
        for body in (b"1", b"2"):
            channel.basic_publish("", "single", body)
        until(connection, lambda: len(first) == 2)
        other.process_data_events(time_limit=0)
        before = len(second)
        channel.close()
        until(other, lambda: len(second) == 2)
        said = f"{texts(first)} | {before} | {texts(second)}"
        waiting.queue_delete("single")
        return said


def an_exclusive_queue_is_of_one_connection() -> str:
    with connected() as connection, connected() as other:
        connection.channel().queue_declare("mine", exclusive=True)
        declared = code(lambda: other.channel().queue_declare("mine", passive=True))
        consumed = code(lambda: other.channel().basic_consume("mine", lambda *_: None))
        deleted = code(lambda: other.channel().queue_delete("mine"))
        connection.close()
        gone = code(lambda: other.channel().queue_declare("mine", passive=True))
        return f"{declared}, {consumed}, {deleted}, {gone}"


def an_exclusive_consumer_is_alone() -> str:
    with connected() as connection:
        channel = connection.channel()
        queue = channel.queue_declare("", exclusive=True).method.queue
        consume(channel, queue, [], exclusive=True)
        return code(lambda: connection.channel().basic_consume(queue, lambda *_: None))


def queues_go_when_nobody_uses_them() -> str:
    with connected() as connection:
        channel = connection.channel()
        channel.queue_declare("auto", auto_delete=True)
        channel.basic_cancel(consume(channel, "auto", []))
        gone = code(lambda: connection.channel().queue_declare("auto", passive=True))
        channel.queue_declare("brief", arguments={"x-expires": 50})
        while code(lambda: connection.channel().queue_declare("brief", passive=True)) == "allowed":
            connection.sleep(0.2)
        return f"{gone}, expired"


def a_consumer_hears_that_its_queue_goes() -> str:
    with connected() as connection:
        channel = connection.channel()
        channel.queue_declare("going")
        cancelled: list[str] = []
        channel.add_on_cancel_callback(lambda frame: cancelled.append(frame.method.consumer_tag))
        consume(channel, "going", [], consumer_tag="tag")
        connection.channel().queue_delete("going")
        until(connection, lambda: cancelled)
        return cancelled[0]


def queues_are_counted_purged_and_deleted() -> str:
    with connected() as connection:
        channel = connection.channel()
        channel.queue_declare("counted")
        for body in (b"1", b"2", b"3"):
            channel.basic_publish("", "counted", body)
        channel.basic_get("counted")
        declared = channel.queue_declare("counted", passive=True).method
        full = code(lambda: connection.channel().queue_delete("counted", if_empty=True))
        used_channel = connection.channel()
        used_channel.basic_qos(prefetch_count=1)
        consume(used_channel, "counted", [])
        used = code(lambda: connection.channel().queue_delete("counted", if_unused=True))
        used_channel.close()
        purged = channel.queue_purge("counted").method.message_count
        deleted = channel.queue_delete("counted").method.message_count
        again = channel.queue_delete("counted").method.message_count
        return f"{declared.message_count} {declared.consumer_count}, {full}, {used}, {purged} {deleted} {again}"


def what_is_asked_again_has_to_be_the_same() -> str:
    with connected() as connection:
        channel = connection.channel()
        channel.queue_declare("same", durable=True)
        channel.exchange_declare("same", "direct")
        acts = [
            lambda: connection.channel().queue_declare("same", durable=False),
            lambda: connection.channel().queue_declare("same", durable=True, arguments={"x-max-length": 1}),
            lambda: connection.channel().queue_declare("same", durable=True, auto_delete=True),
            lambda: connection.channel().exchange_declare("same", "fanout"),
            lambda: connection.channel().queue_declare("same", durable=True),
        ]
        said = ", ".join(code(act) for act in acts)
        channel.queue_delete("same")
        channel.exchange_delete("same")
        return said


def what_is_not_there_is_refused() -> str:
    with connected() as connection:
        queue = connection.channel().queue_declare("", exclusive=True).method.queue
        acts: list[Callable[[], object]] = [
            lambda: connection.channel().queue_declare("missing", passive=True),
            lambda: connection.channel().exchange_declare("missing", passive=True),
            lambda: connection.channel().queue_bind(queue, "missing", "a"),
            lambda: connection.channel().basic_consume("missing", lambda *_: None),
            lambda: connection.channel().basic_get("missing"),
            lambda: connection.channel().queue_purge("missing"),
            lambda: connection.channel().queue_declare("amq.mine"),
            lambda: connection.channel().exchange_declare("amq.mine"),
            lambda: connection.channel().exchange_delete("amq.direct"),
            lambda: connection.channel().queue_bind(queue, "", "a"),
            lambda: publish_to_nothing(connection),
            lambda: unknown_tag(connection),
        ]
        return ", ".join(code(act) for act in acts)


def publish_to_nothing(connection: pika.BlockingConnection) -> None:
    channel = connection.channel()
    channel.confirm_delivery()
    channel.basic_publish("missing", "a", b"")


def unknown_tag(connection: pika.BlockingConnection) -> None:
    channel = connection.channel()
    channel.basic_ack(7)
    channel.queue_declare("", exclusive=True)


def replies_need_no_queue() -> str:
    with connected() as connection, connected() as other:
        asking, answering = connection.channel(), other.channel()
        queue = answering.queue_declare("", exclusive=True).method.queue
        replies: list[tuple[int, str, bool]] = []
        consume(asking, "amq.rabbitmq.reply-to", replies, auto_ack=True)
        asking.basic_publish(
            "", queue, b"question", pika.BasicProperties(reply_to="amq.rabbitmq.reply-to", correlation_id="1")
        )
        while True:
            method, properties, _ = answering.basic_get(queue, auto_ack=True)
            if method is not None:
                break
        hidden = properties.reply_to.startswith("amq.rabbitmq.reply-to.")
        answering.basic_publish("", properties.reply_to, b"answer")
        until(connection, lambda: replies)
        return f"{str(hidden).lower()} {texts(replies)}"


def carbon_copies_are_routed() -> str:
    with connected() as connection:
        channel = connection.channel()
        queues = [channel.queue_declare("", exclusive=True).method.queue for _ in range(3)]
        headers = {"CC": [queues[1]], "BCC": [queues[2]]}
        channel.basic_publish("", queues[0], b"all", pika.BasicProperties(headers=headers))
        seen = []
        for queue in queues:
            _, properties, body = channel.basic_get(queue, auto_ack=True)
            seen.append(f"{body.decode()} {'CC' in properties.headers} {'BCC' in properties.headers}".lower())
        return " | ".join(seen)


def what_is_in_flight_comes_again_when_a_connection_ends() -> str:
    with connected() as connection:
        connection.channel().queue_declare("flight", durable=True)
        with connected() as other:
            channel = other.channel()
            for body in (b"1", b"2", b"3"):
                channel.basic_publish("", "flight", body, PERSISTENT)
            found: list[tuple[int, str, bool]] = []
            consume(channel, "flight", found)
            until(other, lambda: len(found) == 3)
            channel.basic_ack(found[0][0])
            # Whatever comes behind an answer was done after the acknowledgement.
            channel.queue_declare("flight", passive=True)
        channel = connection.channel()
        said = ",".join(wait_for(channel, "flight", 2))
        channel.queue_delete("flight")
        return said


SCENARIOS: list[Callable[[], str]] = [
    properties_come_back,
    bodies_of_every_size,
    exchanges_route,
    exchanges_are_bound_to_exchanges,
    an_alternate_exchange_gets_what_no_queue_got,
    what_nobody_gets_is_returned_and_confirmed,
    what_is_given_back_comes_first,
    recover_gives_all_back,
    dead_letters_say_where_they_died,
    a_full_queue_drops_or_refuses,
    messages_expire,
    consumers_have_turns,
    prefetch_bounds_what_a_consumer_has,
    priorities_of_consumers,
    one_consumer_is_active,
    an_exclusive_queue_is_of_one_connection,
    an_exclusive_consumer_is_alone,
    queues_go_when_nobody_uses_them,
    a_consumer_hears_that_its_queue_goes,
    queues_are_counted_purged_and_deleted,
    what_is_asked_again_has_to_be_the_same,
    what_is_not_there_is_refused,
    replies_need_no_queue,
    carbon_copies_are_routed,
    what_is_in_flight_comes_again_when_a_connection_ends,
]

if __name__ == "__main__":
    for scenario in SCENARIOS:
        print(f"{scenario.__name__.replace('_', ' ')}: {scenario()}", flush=True)
