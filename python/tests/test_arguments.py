"""What a caller gives that cannot be right is an error of the call, which says what to do."""

from __future__ import annotations

import dataclasses
import inspect
import math
import time
from array import array
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import thalweg
from thalweg import exceptions

#: What no number and no time is, and what is at the end of each kind of number.
VALUES: list[Any] = [
    0, -1, 1, math.nan, math.inf, 2**31, 2**32, 2**63, 2**64, "x" * 1_000_000,
]  # fmt: skip

#: What a refused argument raises: the package's own, or what Python says of a wrong type.
REFUSALS = (exceptions.Error, ValueError, TypeError, OverflowError)

#: Parameters that are numbers or times, by the callable that has them; all others are
#: named in `OTHERS`. A new parameter is in one of the two, or a test below fails.
NUMBERS: dict[str, set[str]] = {
    "Driver": {
        "connect_timeout", "request_timeout", "reconnect_timeout", "memory_bytes_max", "stripes",
    },
    "create_topic": {"partitions", "metadata_bytes_max", "data_block_bytes"},
    "add_partitions": {"partitions"},
    "Driver.close": {"timeout"},
    "Driver.seek": {"partition", "position"},
    "producer": {
        "batch", "batch_bytes", "linger_ms", "batches_in_flight", "budget_bytes", "block_timeout",
        "ack_timeout", "threads",
    },
    "consumer": {"start", "credit_bytes", "merge_wait"},
    "group": {"session_timeout", "processing_timeout", "revoke_timeout", "credit_bytes"},
    "queue": {
        "lease", "deliveries_max", "session_timeout", "processing_timeout", "prefetch",
        "prefetch_bytes", "job_end", "wind_down",
    },
    "requester": {"budget_bytes", "block_timeout"},
    "fetch": {"partition", "position", "bytes_max", "timeout"},
    "push": {"time", "partition"},
    "push_many": {"partition"},
    "flush": {"timeout"},
    "seek": {"partition", "position"},
    "position": {"partition"},
    "read": {"start", "end", "credit_bytes"},
    "drain": {"idle"},
    "wind_down": {"within"},
    "return_to_queue": {"delay"},
}  # fmt: skip

OTHERS: dict[str, set[str]] = {
    "Driver": {"group_file", "address", "token", "credential", "namespace", "client_name"},
    "create_topic": {
        "name", "storage", "validator", "partition_selector", "serializer", "durability",
        "retention", "keep_until_acknowledged", "overflow", "validate_on_server", "spread", "placement",
        "beside", "exist_ok",
    },
    "add_partitions": {"name", "storage", "placement"},
    "Driver.close": set(),
    "Driver.seek": {"topic", "consumer"},
    "producer": {"name", "at_budget", "durability", "journal", "ordering"},
    "consumer": {"name", "partitions", "data", "allocator", "on_gap", "inline_along", "latest"},
    "group": {
        "name", "start", "instance", "on_assigned", "on_revoking", "on_lost", "data", "allocator",
        "on_gap", "inline_along",
    },
    "queue": {
        "name", "dead_letter_topic", "ordered_by_key", "start", "instance", "data", "allocator",
        "on_gap", "renew",
    },
    "requester": {"data", "durability"},
    "fetch": set(),
    "push": {"metadata", "data", "key", "headers", "tombstone"},
    "push_many": {"metadata", "data"},
    "flush": set(),
    "seek": set(),
    "position": set(),
    "read": {"partitions", "data", "allocator", "on_gap"},
    "drain": set(),
    "wind_down": set(),
    "return_to_queue": {"reason"},
}  # fmt: skip

#: Parameters that colleagues of these callables may come to have: their own tests say what of them.
_LENT = {"borrow", "check_borrowed", "open_timeout"}

METHODS: dict[str, Any] = {
    "Driver": thalweg.Driver,
    "create_topic": thalweg.Driver.create_topic,
    "add_partitions": thalweg.Driver.add_partitions,
    "Driver.close": thalweg.Driver.close,
    "Driver.seek": thalweg.Driver.seek,
    "producer": thalweg.Topic.producer,
    "consumer": thalweg.Topic.consumer,
    "group": thalweg.Topic.group,
    "queue": thalweg.Topic.queue,
    "requester": thalweg.Topic.requester,
    "fetch": thalweg.Topic.fetch,
    "push": thalweg.Producer.push,
    "push_many": thalweg.Producer.push_many,
    "flush": thalweg.Producer.flush,
    "seek": thalweg.Consumer.seek,
    "position": thalweg.Consumer.position,
    "read": thalweg.Topic.read,
    "drain": thalweg.QueueConsumer.drain,
    "wind_down": thalweg.QueueConsumer.wind_down,
    "return_to_queue": thalweg.QueueEvent.return_to_queue,
}


@pytest.mark.parametrize("method", METHODS)
def test_every_parameter_is_known_here(method: str) -> None:
    parameters = set(inspect.signature(METHODS[method]).parameters) - {"self"}
    known = NUMBERS[method] | OTHERS[method] | _LENT
    assert parameters <= known, "a new parameter: is it a number, to be walked below?"
    assert known - _LENT <= parameters


@dataclasses.dataclass
class Rig:
    server: Any
    driver: thalweg.Driver
    topic: thalweg.Topic
    producer: thalweg.Producer
    reader: thalweg.Consumer


@pytest.fixture
def rig(shared_server: Any, driver: thalweg.Driver, topic: thalweg.Topic) -> Iterator[Rig]:
    producer = topic.producer()
    producer.push({"n": 0}, b"data").result(60)
    reader = topic.consumer("walker")
    yield Rig(shared_server, driver, topic, producer, reader)
    reader.close()
    producer.close()


def _close(opened: Any) -> None:
    opened.close(60)


def _calls(rig: Rig, name: str) -> dict[str, Callable[..., Any]]:
    """What calls each method with one of its numbers, and ends what comes of it."""
    number = iter(range(1_000_000))
    driver, topic = rig.driver, rig.topic

    def fresh() -> str:
        return f"{name}-{next(number)}"

    def made(**given: Any) -> None:
        made = fresh()
        driver.create_topic(made, storage="memory", **given)
        driver.delete_topic(made)

    def added(**given: Any) -> None:
        made = fresh()
        driver.create_topic(made, storage="memory")
        try:
            driver.add_partitions(made, storage="memory", **given)
        finally:
            driver.delete_topic(made)

    def connected(**given: Any) -> None:
        thalweg.Driver(rig.server.group_file, **given).close(60)

    def pushed(**given: Any) -> None:
        rig.producer.push({"n": 1}, **given).result(60)

    def returned(**given: Any) -> None:
        with topic.queue(fresh()) as queue:
            event = queue.pull(60)
            assert event is not None
            event.return_to_queue(**{"delay": 0.0, **given})

    def wound_down(**given: Any) -> None:
        with topic.queue(fresh()) as queue:
            queue.wind_down(**given)

    def drained(**given: Any) -> None:
        with topic.queue(fresh()) as queue:
            queue.drain(**given)

    def moved(method: Callable[..., Any], *front: Any) -> Callable[..., Any]:
        return lambda **given: method(*front, **{"partition": 0, "position": 0, **given})

    return {
        "Driver": connected,
        "create_topic": made,
        "add_partitions": added,
        "Driver.close": lambda **given: rig.server.connect().close(**given),
        "Driver.seek": moved(driver.seek, topic, "walker"),
        "producer": lambda **given: _close(topic.producer(**given)),
        "consumer": lambda **given: _close(topic.consumer(fresh(), **given)),
        "group": lambda **given: _close(topic.group(fresh(), **given)),
        "queue": lambda **given: _close(topic.queue(fresh(), **given)),
        "requester": lambda **given: _close(topic.requester(**given)),
        "fetch": moved(topic.fetch),
        "push": pushed,
        "push_many": lambda **given: rig.producer.push_many([{}], **given),
        "flush": rig.producer.flush,
        "seek": moved(rig.reader.seek),
        "position": rig.reader.position,
        "read": lambda **given: topic.read(**given).close(),
        "drain": drained,
        "wind_down": wound_down,
        "return_to_queue": returned,
    }


@pytest.mark.parametrize("method", METHODS)
def test_no_number_hangs_or_breaks_anything(rig: Rig, name: str, method: str) -> None:
    call = _calls(rig, name)[method]
    for parameter in sorted(NUMBERS[method]):
        for value in VALUES:
            try:
                call(**{parameter: value})
            except REFUSALS as refusal:
                assert len(str(refusal)) < 10_000_000
    # The driver serves its other users.
    rig.producer.push({"n": 2}).result(60)
    assert rig.driver.status()


@pytest.mark.parametrize(
    ("method", "given", "said"),
    [
        ("producer", {"ack_timeout": 0}, "ack_timeout is 0"),
        ("producer", {"batches_in_flight": 2**33}, "65536"),
        ("producer", {"linger_ms": -1}, "milliseconds from 0, not -1"),
        ("producer", {"budget_bytes": 0}, "budget_bytes is 0"),
        ("consumer", {"credit_bytes": 0}, "credit_bytes is 0"),
        ("consumer", {"partitions": [0, 0]}, "names 0 twice"),
        ("consumer", {"start": -(2**70)}, "offset of an event"),
        ("group", {"session_timeout": 0}, "session_timeout is 0"),
        ("group", {"revoke_timeout": 0}, "revoke_timeout_ms is 0"),
        ("queue", {"session_timeout": 0}, "session_timeout is 0"),
        ("queue", {"processing_timeout": 0}, "processing_timeout is 0"),
        ("queue", {"lease": 0}, "lease_ms is 0"),
        ("queue", {"lease": math.nan}, "lease is a number of seconds"),
        ("queue", {"instance": "x" * 1000}, "instance name is 1000 bytes"),
    ],
)
def test_a_refusal_names_the_argument(rig: Rig, name: str, method: str, given: Any, said: str) -> None:
    with pytest.raises(thalweg.exceptions.InvalidArgument, match=said):
        _calls(rig, name)[method](**given)


def test_a_driver_refuses_names_and_times(shared_server: Any) -> None:
    for given in (
        {"namespace": "x" * 10_000_000},
        {"namespace": "a/b"},
        {"client_name": "a\0b"},
        {"connect_timeout": 0},
        {"request_timeout": 0},
        {"memory_bytes_max": 0},
    ):
        with pytest.raises(exceptions.InvalidArgument):
            thalweg.Driver(shared_server.group_file, **given)  # type: ignore[arg-type]


def test_topics_that_cannot_be(driver: thalweg.Driver, name: str) -> None:
    wrong: list[dict[str, Any]] = [
        {"partitions": 10_000},
        {"partitions": 2**31},
        {"partitions": 2**32},
        {"retention": {"bytes": math.nan}},
        {"retention": {"bytes": 2**70}},
        {"metadata_bytes_max": 2**63},
        {"storage": ("memory", {"bytes_max": math.inf})},
    ]
    for given in wrong:
        with pytest.raises(exceptions.InvalidTopic):
            driver.create_topic(name, **given)
    assert not driver.topic_exists(name)
    driver.create_topic(name, storage="memory")
    for count in (4096, 2**31):
        with pytest.raises(exceptions.InvalidTopic):
            driver.add_partitions(name, count)
    with pytest.raises(exceptions.InvalidTopic, match=r"retention.*nan"):
        driver.alter_topic(name, retention={"count": math.nan})


def test_an_event_to_begin_at_is_of_the_topic(driver: thalweg.Driver, name: str) -> None:
    topic = driver.create_topic(name, partitions=2, storage="memory")
    with pytest.raises(exceptions.UnknownPartition, match="partition 7"):
        topic.consumer("reader", start=thalweg.EventId(7, 1, 0))
    with pytest.raises(exceptions.InvalidArgument, match="none of those"):
        topic.consumer("reader", start=thalweg.EventId(1, 1, 0), partitions=[0])
    topic.consumer("reader", start=thalweg.EventId(1, 1, 0)).close()


class _Table:
    """As the tables and sets of several libraries look."""

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        raise NotImplementedError


@pytest.mark.parametrize(
    "data",
    [
        np.zeros((600, 800), np.uint16),
        np.zeros(3, ">f8"),
        array("d", [1.0, 2.0]),
        memoryview(np.zeros((2, 2))),
        _Table(),
    ],
    ids=["image", "big-endian", "array.array", "memoryview", "table"],
)
def test_data_is_no_metadata(topic: thalweg.Topic, data: Any) -> None:
    with topic.producer() as producer:
        for push in (
            lambda: producer.push(data),
            lambda: producer.push_many([{}, data]),
        ):
            with pytest.raises(exceptions.InvalidEvent, match=r"push\(metadata, data\)"):
                push()
    assert topic.fetch(0, 0) == []


def test_scalars_and_bytes_are_metadata(topic: thalweg.Topic) -> None:
    with topic.producer() as producer:
        for metadata, read in [
            (np.float64(0.5), 0.5),
            (np.int32(7), 7),
            (bytearray(b"[1]"), [1]),
            (memoryview(b"[1]"), [1]),
            ({"a": np.arange(3)}, {"a": [0, 1, 2]}),
        ]:
            offset = producer.push(metadata).result(60).offset
            assert topic.fetch(0, offset)[0].metadata == read


@dataclasses.dataclass
class _Loss:
    value: float


@pytest.mark.parametrize(
    ("metadata", "path"),
    [
        ({"loss": math.nan}, r"metadata\['loss'\] is nan"),
        ({"a": [1, None, {"b": -math.inf}]}, r"metadata\['a'\]\[2\]\['b'\] is -inf"),
        (math.inf, "metadata is inf"),
        ({"a": np.float64("nan")}, r"metadata\['a'\] is nan"),
        ({"a": np.float32("inf")}, r"metadata\['a'\] is inf"),
        ({"a": np.array([1.0, math.nan])}, r"metadata\['a'\]\[1\] is nan"),
        ({"a": _Loss(math.nan)}, "metadata"),
    ],
)
def test_a_number_that_json_has_not_is_refused_by_its_path(
    topic: thalweg.Topic, metadata: Any, path: str
) -> None:
    with topic.producer() as producer, pytest.raises(exceptions.InvalidEvent, match=path):
        producer.push(metadata)
    assert topic.fetch(0, 0) == []


@pytest.mark.parametrize("serializer", ["json", "msgpack"])
def test_numbers_that_metadata_has_not_are_refused_whatever_the_serializer(
    driver: thalweg.Driver, name: str, serializer: str
) -> None:
    pytest.importorskip("orjson")  # Without it an int of any width is written.
    topic = driver.create_topic(name, storage="memory", serializer=serializer)
    kept = {"least": -(2**63), "greatest": 2**64 - 1}
    with topic.producer() as producer:
        for wide in (2**64, -(2**63) - 1, 10**30):
            path = rf"metadata\['a'\]\[1\] is an int of {wide.bit_length()} bits"
            with pytest.raises(exceptions.InvalidEvent, match=path):
                producer.push({"a": [0, wide]})
        with pytest.raises(exceptions.InvalidEvent, match=r"metadata\['a'\] is nan"):
            producer.push({"a": math.nan})
        producer.push(kept).result(60)
    assert [event.metadata for event in topic.fetch(0, 0)] == [kept]
    path = r"the definition\['retention'\]\['bytes'\] is an int of 71 bits"
    with pytest.raises(exceptions.InvalidTopic, match=path):
        driver.create_topic(f"{name}-wide", storage="memory", retention={"bytes": 2**70})


def test_null_stays_null(topic: thalweg.Topic) -> None:
    with topic.producer() as producer:
        for metadata in ({"a": None, "b": [1.5, None]}, {"a": "null"}, None):
            offset = producer.push(metadata).result(60).offset
            assert topic.fetch(0, offset)[0].metadata == metadata


def test_data_that_was_not_read_is_no_empty_array(topic: thalweg.Topic) -> None:
    with topic.producer() as producer:
        producer.push({"n": 0}, np.arange(4.0))
        producer.push({"n": 1})
    [first, second] = topic.fetch(0, 0, timeout=60)
    for read in (lambda: first.data, first.numpy):
        with pytest.raises(exceptions.InvalidArgument, match="read_data"):
            read()
    assert len(second.data) == 0 and second.numpy().size == 0
    assert len(topic.read_data(first)) == 32
    with topic.consumer("blind", data=False) as consumer:
        event = consumer.pull(60)
        assert event is not None
        with pytest.raises(exceptions.InvalidArgument, match="read_data"):
            event.data  # noqa: B018
    with topic.consumer("choosy", data=lambda metadata, view: None) as consumer:
        event = consumer.pull(60)
        assert event is not None and len(event.data) == 0


def test_wrong_data_and_times_say_what_would_be_right(topic: thalweg.Topic) -> None:
    with topic.producer() as producer:
        with pytest.raises(exceptions.InvalidEvent, match=r"encode\(\)"):
            producer.push({}, "text")
        with pytest.raises(TypeError, match=r"time\.time_ns\(\)"):
            producer.push({}, time=time.time())
        with pytest.raises(ValueError, match="from 0"):
            producer.push({}, time=-1)


def test_selections_of_many_pieces(topic: thalweg.Topic) -> None:
    image = np.arange(400_000, dtype=np.uint16).reshape(200_000, 2)
    with topic.producer() as producer:
        producer.push({}, image).result(60)
    view = thalweg.DataView(image.nbytes).stride(count=200_000, block=2, gap=2)
    assert len(view.parts) == 200_000
    [event] = topic.fetch(0, 0, timeout=60)
    read = np.frombuffer(topic.read_data(event, view), np.uint16)
    assert (read == image[:, 0]).all()
    column = np.zeros(200_000, np.uint16)
    with topic.consumer(
        "columns", data=lambda metadata, whole: view, allocator=lambda metadata, view: column
    ) as consumer:
        assert consumer.pull(60) is not None
    assert (column == image[:, 0]).all()


def test_a_consumer_refuses_itself_to_its_selector(topic: thalweg.Topic) -> None:
    with topic.producer() as producer:
        producer.push({}, bytes(100_000)).result(60)
    refused = []

    def select(metadata: Any, view: thalweg.DataView) -> thalweg.DataView:
        for call in (lambda: reader.pull(60), lambda: reader.seek(0, 0)):
            with pytest.raises(exceptions.InvalidArgument, match="within its own selector"):
                call()
            refused.append(call)
        return view

    with topic.consumer("reader", data=select) as reader:
        assert reader.pull(60) is not None
    assert len(refused) == 2

    def work(metadata: Any, view: thalweg.DataView) -> thalweg.DataView:
        with pytest.raises(exceptions.InvalidArgument, match="within its own selector"):
            worker.pull(60)
        return view

    with topic.queue("workers", data=work) as worker:
        assert worker.pull(60) is not None


def test_closing_with_a_wrong_timeout_closes_nothing(topic: thalweg.Topic) -> None:
    producer, reader, worker = topic.producer(), topic.consumer("reader"), topic.queue("workers")
    for opened in (producer, reader, worker):
        with pytest.raises(exceptions.InvalidArgument, match="timeout"):
            opened.close(-1)
        assert not opened.closed
        opened.close(60)
        assert opened.closed
