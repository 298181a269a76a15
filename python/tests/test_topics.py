"""Drivers and topics: making, describing, refusing."""

from __future__ import annotations

import json
import sys
import threading
import time
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import thalweg


def test_a_topic_is_made_described_and_deleted(driver: thalweg.Driver, name: str) -> None:
    assert not driver.topic_exists(name)
    topic = driver.create_topic(name, partitions=2, storage=["disk", "memory"])
    assert driver.topic_exists(name)
    assert (topic.name, len(topic.id)) == (name, 32)
    assert [partition.storage for partition in topic.partitions] == ["disk", "memory"]
    assert [partition.durability for partition in topic.partitions] == ["synced", "memory"]
    assert topic.definition["partition_selector"] == {"type": "round_robin"}
    described = driver.describe_topic(name)
    assert (described.name, described.id) == (name, topic.id)
    assert described in driver.list_topics()
    assert driver.open_topic(name).id == topic.id
    driver.delete_topic(name)
    with pytest.raises(thalweg.UnknownTopic, match=name):
        driver.open_topic(name)


def test_all_of_a_definition_reaches_the_server(driver: thalweg.Driver, name: str) -> None:
    schema = {"type": "object", "required": ["angle"]}
    driver.create_topic(
        name,
        storage="disk",
        validator=schema,
        partition_selector="key_hash",
        serializer="json",
        durability="written",
        retention={"bytes": 1 << 30, "age_ms": 1000, "count": 10},
        metadata_bytes_max=1000,
        data_block_bytes=1024,
        validate_on_server=True,
    )
    definition = driver.describe_topic(name).definition
    assert definition["validator"] == {"type": "schema", "schema": schema}
    assert definition["partition_selector"] == {"type": "key_hash"}
    assert definition["durability"] == "written"
    assert definition["retention"] == {"bytes": 1 << 30, "age_ms": 1000, "count": 10}
    assert definition["metadata_bytes_max"] == 1000
    assert definition["data_block_bytes"] == 1024
    assert definition["validate_on_server"] is True


def test_fields_choose_partitions_and_messagepack_carries_json(
    driver: thalweg.Driver, name: str
) -> None:
    topic = driver.create_topic(
        name,
        partitions=2,
        storage="memory",
        partition_selector={"type": "field_range", "field": "energy", "boundaries": [0, 10, 20]},
        serializer="msgpack",
    )
    documents = [{"energy": energy, "of": ["é", None, 1.5]} for energy in (3, 13.5, 9)]
    with topic.producer() as producer:
        ids = [producer.push(document).result() for document in documents]
        with pytest.raises(thalweg.InvalidEvent, match="energy: 20 is outside of 0 to 20"):
            producer.push({"energy": 20})
        with pytest.raises(thalweg.InvalidEvent, match="not JSON"):
            producer.push("{")
    assert [id.partition for id in ids] == [0, 1, 0]
    with topic.consumer("reader") as consumer:
        events = [consumer.pull() for _ in documents]
    metadata = {event.id: event.metadata for event in events if event is not None}
    assert metadata == dict(zip(ids, documents, strict=True))


def test_a_topic_may_need_a_plugin_that_is_not_here(driver: thalweg.Driver, name: str) -> None:
    plugin = thalweg.Plugin("energy:libnowhere.so", {"energy_max": 7})
    topic = driver.create_topic(name, storage="memory", validator=plugin)
    assert topic.definition["validator"] == {
        "type": "plugin",
        "name": "energy:libnowhere.so",
        "options": {"energy_max": 7},
    }
    with pytest.raises(thalweg.PluginError, match="energy:libnowhere.so"):
        topic.producer()


def test_what_is_kept_is_told_in_words(driver: thalweg.Driver, name: str) -> None:
    topic = driver.create_topic(name, partitions=4, retention="40GB, 7d")
    kept = {"total_bytes": 40_000_000_000, "age_ms": 604_800_000}
    assert topic.definition["retention"] == kept
    described = driver.alter_topic(name, retention={"bytes": "512MiB", "age": "12h"})
    assert described.definition["retention"] == {"bytes": 512 << 20, "age_ms": 43_200_000}
    described = driver.alter_topic(name, retention="30m")
    assert described.definition["retention"] == {"age_ms": 1_800_000}


@pytest.mark.parametrize(
    ("definition", "reason"),
    [
        ({"validator": "xml"}, "xml"),
        ({"validator": {"type": 7}}, "validator"),
        ({"partition_selector": "sticky"}, "sticky"),
        ({"partition_selector": {"type": "field_range", "field": "a", "boundaries": [1, 0]}}, "ascend"),
        ({"validator": thalweg.Plugin("energy")}, "name:library.so"),
        ({"retention": {"age": 1}}, "age.*such as .*7d"),
        ({"retention": {"bytes": "10 gigs"}}, "bytes.*such as .*10GB.*found .*10 gigs"),
        ({"retention": "40G"}, "such as .*40GB,7d"),
        ({"metadata_bytes_max": 0}, "metadata_bytes_max"),
        ({"storage": "tape"}, "tape"),
        ({"storage": "memory", "durability": "synced"}, "memory"),
    ],
)
def test_a_bad_definition_is_refused_and_leaves_nothing(
    driver: thalweg.Driver, name: str, definition: dict[str, Any], reason: str
) -> None:
    with pytest.raises(thalweg.InvalidTopic, match=reason):
        driver.create_topic(name, **definition)
    assert not driver.topic_exists(name)


@pytest.mark.parametrize(
    "arguments",
    [
        {"durability": "eternal"},
        {"partitions": 3, "storage": ["disk"]},
        {"storage": 7},
    ],
)
def test_arguments_that_make_no_sense_are_refused(
    driver: thalweg.Driver, name: str, arguments: dict[str, Any]
) -> None:
    with pytest.raises(thalweg.InvalidArgument):
        driver.create_topic(name, **arguments)


def test_a_name_is_taken_once(driver: thalweg.Driver, name: str) -> None:
    first = driver.create_topic(name, storage="memory")
    with pytest.raises(thalweg.TopicExists, match=name) as raised:
        driver.create_topic(name, storage="memory")
    assert raised.value.code == "topic exists"
    assert driver.create_topic(name, exist_ok=True).id == first.id


def test_a_topic_that_is_there_and_differs_is_warned_of(
    driver: thalweg.Driver, name: str
) -> None:
    given: dict[str, Any] = {
        "partitions": 2,
        "storage": "memory",
        "retention": "5GB,7d",
        "validator": "json",
        "durability": "memory",
        "partition_selector": {"type": "field_hash", "field": "a"},
    }
    first = driver.create_topic(name, **given)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert driver.create_topic(name, **given, exist_ok=True).id == first.id
        assert driver.create_topic(name, exist_ok=True).id == first.id
    with pytest.warns(UserWarning, match=r"topic\.alter") as caught:
        again = driver.create_topic(name, partitions=7, retention="6GB", exist_ok=True)
    assert again.id == first.id
    (warning,) = caught
    assert warning.filename == __file__
    text = str(warning.message)
    assert name in text
    assert "retention (asked " in text
    assert "partitions (asked 7, there 2)" in text
    assert "validator" not in text
    # What differs may be large, and is not told whole.
    properties = {f"property {number}": {"type": "string"} for number in range(500)}
    schema = {"type": "object", "properties": properties}
    with pytest.warns(UserWarning, match="validator") as caught:
        driver.create_topic(name, validator=schema, exist_ok=True)
    assert len(str(caught[0].message)) < 1000


def test_partitions_are_added_to_a_live_topic(driver: thalweg.Driver, name: str) -> None:
    topic = driver.create_topic(name, partitions=0)
    assert topic.partitions == ()
    with topic.producer() as producer:
        with pytest.raises(thalweg.UnknownPartition, match="no partitions"):
            producer.push({})
        described = driver.add_partitions(name, 2, storage="memory")
        assert len(described.partitions) == 2
        topic.refresh()
        assert len(topic.partitions) == 2
        assert producer.push({"a": 1}, partition=1).result().partition == 1
        with pytest.raises(thalweg.UnknownPartition, match="2"):
            producer.push({}, partition=2)


def test_a_spread_topic_is_used_as_any_other(driver: thalweg.Driver, name: str) -> None:
    topic = driver.create_topic(name, partitions=3, storage="memory", spread=True)
    assert len(topic.partitions) == 3
    with topic.producer() as producer:
        ids = [producer.push({"n": n}) for n in range(30)]
    assert {future.result().partition for future in ids} == {0, 1, 2}
    described = driver.describe_topic(name)
    assert described in driver.list_topics()
    assert [partition.end for partition in described.partitions] == [10, 10, 10]
    with topic.consumer("reader") as consumer:
        events = [consumer.pull(timeout=60) for _ in range(30)]
    assert sorted(event.metadata["n"] for event in events if event) == list(range(30))
    with topic.queue("farm") as queue:
        for event in queue.drain(idle=0.1):
            event.acknowledge()
    assert len(driver.add_partitions(name, 2, storage="memory").partitions) == 5
    driver.delete_topic(name)
    assert not driver.topic_exists(f"{name}/0")


def test_status_is_a_dict(driver: thalweg.Driver) -> None:
    assert isinstance(driver.status(), dict)


def test_a_server_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(thalweg.Error, match="absent.json"):
        thalweg.Driver(tmp_path / "absent.json", connect_timeout=0.1)
    with pytest.raises(ConnectionError):
        thalweg.Driver(address=f"unix://{tmp_path}/absent.sock", connect_timeout=0.1)


def test_a_group_file_that_is_not_there_is_an_error_at_once(tmp_path: Path) -> None:
    begun = time.monotonic()
    with pytest.raises(thalweg.Unreachable, match=r"absent.json: No such file .* connect_timeout"):
        thalweg.Driver(tmp_path / "absent.json")
    for given in ["tcp://localhost", "tcp://localhost:http", "localhost:9000", "telnet://there:1"]:
        with pytest.raises(thalweg.InvalidArgument, match=given):
            thalweg.Driver(address=given)
    with pytest.raises(thalweg.InvalidArgument, match="give it as the address"):
        thalweg.Driver("tcp://localhost:9000")
    # Each of them was the default connect timeout of ten seconds.
    assert time.monotonic() - begun < 10


def test_a_group_file_that_comes_later_is_waited_for(server: Any, tmp_path: Path) -> None:
    server.connect().close()
    later = tmp_path / "later.json"
    with ThreadPoolExecutor() as pool:
        connecting = pool.submit(thalweg.Driver, later, connect_timeout=60)
        written = tmp_path / "written.json"
        written.write_bytes(server.group_file.read_bytes())
        written.rename(later)
        connecting.result().close()


def test_a_driver_finds_the_group_file_of_the_environment(
    shared_server: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    shared_server.connect().close()
    monkeypatch.setenv("THALWEG_GROUP_FILE", str(shared_server.group_file))
    thalweg.Driver().close()
    monkeypatch.delenv("THALWEG_GROUP_FILE")
    monkeypatch.chdir(shared_server.group_file.parent)
    thalweg.Driver().close()
    monkeypatch.chdir(tmp_path)
    with pytest.raises(thalweg.Unreachable, match="thalweg.json"):
        thalweg.Driver()


def test_a_missing_or_wrong_token_is_not_allowed(shared_server: Any, tmp_path: Path) -> None:
    server = type(shared_server)(tmp_path, "tcp://127.0.0.1:0")
    server.start()
    try:
        server.connect().close()
        group = json.loads(server.group_file.read_text())
        (address,) = (at for at in group["endpoints"] if at.startswith("tcp"))
        with pytest.raises(thalweg.NotAllowed, match="the server asks for a token: ") as raised:
            thalweg.Driver(address=address)
        assert address in str(raised.value)
        with pytest.raises(thalweg.NotAllowed, match="token is not this server's"):
            thalweg.Driver(address=address, token=bytes(32))
        thalweg.Driver(address=address, token=group["token"]).close()
    finally:
        server.stop()


@pytest.mark.parametrize(
    "arguments", [{"group_file": "a", "address": "b"}, {"group_file": "a", "token": b"c"}]
)
def test_a_driver_has_one_way_to_connect(arguments: dict[str, Any]) -> None:
    with pytest.raises(thalweg.InvalidArgument):
        thalweg.Driver(**arguments)


def test_a_closed_driver_says_so(shared_server: Any) -> None:
    with shared_server.connect() as driver:
        assert not driver.closed
        topic = driver.create_topic("closed-driver", storage="memory", exist_ok=True)
    assert driver.closed
    driver.close()
    with pytest.raises(thalweg.Closed):
        driver.list_topics()
    with pytest.raises(thalweg.Closed):
        topic.producer()


def test_two_servers_cannot_be_mixed_up(server: Any, driver: thalweg.Driver) -> None:
    with server.connect() as other:
        other.create_topic("only-there", storage="memory")
        assert not driver.topic_exists("only-there")


def test_errors_are_what_they_say() -> None:
    assert issubclass(thalweg.Timeout, TimeoutError)
    assert issubclass(thalweg.InvalidEvent, ValueError)
    assert issubclass(thalweg.UnknownTopic, LookupError)
    for name in thalweg.exceptions.__all__:
        if name != "GapWarning":
            assert issubclass(getattr(thalweg, name), thalweg.Error)


def test_a_partition_that_is_not_there_is_always_the_same_error(
    driver: thalweg.Driver, name: str
) -> None:
    topic = driver.create_topic(name, partitions=2, storage="memory")
    with topic.producer() as producer, topic.consumer("c", partitions=[1]) as consumer:
        for call in (
            lambda: producer.push({}, partition=2),
            lambda: producer.push_many([{}, {}], partition=2),
            lambda: topic.consumer("other", partitions=[0, 2]),
            lambda: topic.fetch(2, 0),
            lambda: consumer.seek(2, 0),
        ):
            with pytest.raises(thalweg.UnknownPartition, match="2"):
                call()
        # This one is there, and is not read.
        with pytest.raises(thalweg.InvalidArgument, match="does not read partition 0"):
            consumer.seek(0, 0)


def test_a_topic_is_altered_while_it_is_in_use(server: Any) -> None:
    with server.connect() as driver:
        topic = driver.create_topic(
            "altered", storage="memory", keep_until_acknowledged=["archive"]
        )
        with topic.producer() as producer:
            producer.push_many([{"i": i} for i in range(10)])
        assert driver.describe_topic("altered").partitions[0].first == 0
        with topic.consumer("archive") as archive:
            for event in archive.pull_batch(10, timeout=60):
                last = event
            last.acknowledge()
        described = driver.alter_topic(
            "altered", retention={"count": 5}, keep_until_acknowledged=None
        )
        assert described.definition["retention"] == {"count": 5}
        with pytest.raises(thalweg.InvalidTopic, match="durability"):
            driver.alter_topic("altered", durability="memory")


def nested(levels: int) -> dict[str, Any]:
    """A schema whose work multiplies by three with each level."""
    defs: dict[str, Any] = {f"l{levels}": {}}
    for level in range(levels):
        defs[f"l{level}"] = {"oneOf": [{"$ref": f"#/$defs/l{level + 1}"}] * 3}
    return {"$ref": "#/$defs/l0", "$defs": defs}


@pytest.mark.parametrize("levels", [15, 20])
def test_a_schema_of_boundless_work_is_refused(
    driver: thalweg.Driver, name: str, levels: int
) -> None:
    with pytest.raises(thalweg.InvalidArgument, match="validation budget"):
        driver.create_topic(name, validator=nested(levels), validate_on_server=True)
    # Where the least metadata does not show it, its event is refused, and nobody else waits for it.
    schema = nested(levels)
    schema = {"$defs": schema["$defs"], "properties": {"x": {"$ref": schema["$ref"]}}}
    topic = driver.create_topic(name, validator=schema, validate_on_server=True)
    with topic.producer() as producer:
        with pytest.raises(thalweg.InvalidEvent, match="validation budget of an event"):
            producer.push({"x": {}})
        producer.push({"y": 1}).result(60)
    assert driver.topic_exists(name)


def costly() -> dict[str, Any]:
    """A schema for which a short list takes much of what one event may."""
    schema = json.loads(json.dumps(nested(6)).replace("oneOf", "allOf"))
    return {"$defs": schema["$defs"], "items": {"$ref": schema["$ref"]}}


def test_a_server_that_judges_answers_others(driver: thalweg.Driver, name: str) -> None:
    topic = driver.create_topic(name, validator=costly(), validate_on_server=True)
    over = threading.Event()
    pushed = []

    def push() -> None:
        with topic.producer() as producer:
            while not over.is_set():
                pushed.append(producer.push([{}] * 8).result(60))

    threads = [threading.Thread(target=push) for _ in range(2)]
    for thread in threads:
        thread.start()
    try:
        answered = 0
        # Answers come between batches, however many batches there are.
        while answered < 20 or len(pushed) < 20:
            assert driver.status()
            answered += 1
            assert any(thread.is_alive() for thread in threads)
    finally:
        over.set()
        for thread in threads:
            thread.join()


def test_other_threads_run_while_metadata_is_judged(driver: thalweg.Driver, name: str) -> None:
    topic = driver.create_topic(name, validator={"items": {"type": "integer"}})
    metadata = json.dumps(list(range(5_000)))
    over = threading.Event()
    turns = 0

    def count() -> None:
        nonlocal turns
        while not over.is_set():
            turns += 1
            time.sleep(0)

    interval = sys.getswitchinterval()
    thread = threading.Thread(target=count)
    with topic.producer() as producer:
        thread.start()
        # A thread goes on only if another one gives it the GIL.
        sys.setswitchinterval(1000)
        try:
            before = turns
            for _ in range(500):
                producer.push(metadata)
                if turns > before:
                    break
            assert turns > before
        finally:
            sys.setswitchinterval(interval)
            over.set()
            thread.join()


def test_what_is_open_of_a_spread_topic_uses_partitions_that_are_added(driver: thalweg.Driver, name: str) -> None:
    topic = driver.create_topic(name, partitions=0, spread=True)
    producer, consumer = topic.producer(), topic.consumer("reader")
    with pytest.raises(thalweg.UnknownPartition, match="no partition"):
        producer.push({"n": 0})
    assert consumer.pull(timeout=0) is None
    driver.add_partitions(name, 2, storage="memory")
    topic.refresh()
    for n in range(4):
        producer.push({"n": n})
    producer.flush()
    assert sorted(consumer.pull(timeout=60).metadata["n"] for _ in range(4)) == [0, 1, 2, 3]
    assert [partition.end for partition in driver.describe_topic(name).partitions] == [2, 2]


def test_a_server_that_is_alone_has_no_labels_to_place_by(driver: thalweg.Driver, name: str) -> None:
    assert driver.list_nodes() == []
    with pytest.raises(thalweg.InvalidTopic, match="alone"):
        driver.create_topic(name, placement={"rank": 0})
    driver.create_topic(name, storage="memory")
    with pytest.raises(thalweg.InvalidArgument, match="on one node"):
        driver.add_partitions(name, placement={"host": "here"})
    with pytest.raises(thalweg.InvalidTopic, match="label"):
        driver.add_partitions(name, placement={"": "here"})
    assert len(driver.describe_topic(name).partitions) == 1
