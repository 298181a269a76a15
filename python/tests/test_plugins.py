"""Plugins: the worked example in Python and in C, and plugins that are bad."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import thalweg
from thalweg import Plugin, plugins

EXAMPLES = Path(__file__).parents[2] / "examples" / "plugins"
INCLUDE = Path(__file__).parents[2] / "include"


@pytest.fixture
def energy(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.syspath_prepend(EXAMPLES)  # type: ignore[no-untyped-call]
    yield
    sys.modules.pop("energy", None)


def create(
    driver: thalweg.Driver, name: str, validator: str, selector: str, serializer: str
) -> thalweg.Topic:
    options = {"energy_max": 100.0}
    return driver.create_topic(
        name,
        partitions=4,
        storage="memory",
        validator=Plugin(validator, options),
        partition_selector=Plugin(selector, options),
        serializer=Plugin(serializer),
    )


def exercise(topic: thalweg.Topic) -> None:
    energies = [index / 4 for index in range(400)]
    with topic.producer(batch=100) as producer:
        for bad, why in [
            ({"energy": 100.5}, "energy 100.5 is not from 0 to 100"),
            ({"energy": "7"}, 'expected {"energy": a number}'),
            ({}, 'expected {"energy": a number}'),
        ]:
            with pytest.raises(thalweg.InvalidEvent) as refused:
                producer.push(bad)
            assert str(refused.value) == f"metadata is refused: {why}"
        futures = [producer.push({"energy": energy}) for energy in energies]
        ids = [future.result() for future in futures]
    assert [id.partition for id in ids] == [int(energy // 25) for energy in energies]
    with topic.consumer("reader") as consumer:
        events = [event for _ in energies if (event := consumer.pull()) is not None]
    got = {event.id: event.metadata for event in events}
    assert got == {id: {"energy": energy} for id, energy in zip(ids, energies, strict=True)}
    # What is stored is 8 bytes an event; the rest of a batch is its columns,
    # which JSON of 16 bytes and more would exceed. Memory counts 640 bytes besides for a batch.
    topic.refresh()
    stored = sum(partition.bytes for partition in topic.partitions)
    assert stored < 400 * 16 + len(topic.partitions) * 640


@pytest.mark.usefixtures("energy")
def test_the_example_in_python(driver: thalweg.Driver, name: str) -> None:
    exercise(
        create(
            driver,
            name,
            "energy:EnergyValidator",
            "energy:EnergySelector",
            "energy:EnergySerializer",
        )
    )


def test_the_example_in_c(shared_server: Any, tmp_path: Path, name: str) -> None:
    library = tmp_path / "libenergy.so"
    command = ["cc", "-std=c11", "-Wall", "-Wextra", "-Werror", "-fPIC", "-shared"]
    command += ["-I", str(INCLUDE), str(EXAMPLES / "energy.c"), "-o", str(library), "-lm"]
    subprocess.run(command, check=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("THALWEG_PLUGIN_PATH", str(tmp_path))
        driver = shared_server.connect()
    with driver:
        exercise(
            create(
                driver,
                name,
                "energy_validator:libenergy.so",
                "energy_selector:libenergy.so",
                "energy_serializer:libenergy.so",
            )
        )


class Picky(plugins.Validator):
    def validate(self, metadata: bytes) -> None:
        match json.loads(metadata):
            case "refuse":
                raise ValueError("not this one")
            case "fail":
                raise RuntimeError("broken")


class Odd(plugins.PartitionSelector):
    def select(self, metadata: bytes, key: bytes | None, partition_count: int) -> int:
        return json.loads(metadata)  # type: ignore[no-any-return]


class Forgetful(plugins.Serializer):
    def serialize(self, metadata: bytes) -> bytes:
        return None  # type: ignore[return-value]

    def deserialize(self, data: bytes) -> bytes:
        raise RuntimeError("forgotten")


class NeedsMore(plugins.Validator):
    def __init__(self, options: dict[str, Any]) -> None:
        super().__init__(options)
        raise KeyError("depth")

    def validate(self, metadata: bytes) -> None: ...


class NotOurs:
    def __init__(self, options: dict[str, Any]) -> None:
        raise AssertionError("only plugins are called")


@pytest.mark.parametrize(
    ("plugin", "reason"),
    [
        ("nowhere.at.all:Energy", "No module named 'nowhere'; modules are looked for in sys.path"),
        (f"{__name__}:Missing", "has no attribute 'Missing'"),
        (f"{__name__}:NotOurs", "NotOurs is no validator: no subclass of"),
        (f"{__name__}:Odd", "Odd is no validator: no subclass of thalweg.plugins.Validator"),
        ("os:system", "system is no validator"),
        (f"{__name__}:NeedsMore", "KeyError: 'depth'"),
        ("energy:libthalweg_nowhere.so", "the system does not find it"),
    ],
)
def test_a_plugin_that_cannot_be_had_is_named(
    driver: thalweg.Driver, name: str, plugin: str, reason: str
) -> None:
    topic = driver.create_topic(name, storage="memory", validator=Plugin(plugin))
    with pytest.raises(thalweg.PluginError) as refused:
        topic.producer()
    assert f'plugin "{plugin}": ' in str(refused.value)
    assert reason in str(refused.value)


def test_what_a_plugin_raises_is_told(driver: thalweg.Driver, name: str) -> None:
    topic = driver.create_topic(
        name,
        storage="memory",
        validator=Plugin(f"{__name__}:Picky"),
        partition_selector=Plugin(f"{__name__}:Odd"),
    )
    with topic.producer() as producer:
        for metadata, reason in [
            ("refuse", "metadata is refused: not this one"),
            ("fail", f'plugin "{__name__}:Picky" failed: RuntimeError: broken'),
            (7, f'plugin "{__name__}:Odd" chose partition 7; the topic has 1'),
            (-1, "chose partition 4294967295"),
            ("one", f'plugin "{__name__}:Odd" failed: TypeError: select returns an int, not one'),
        ]:
            with pytest.raises(thalweg.InvalidEvent) as refused:
                producer.push(json.dumps(metadata))
            assert reason in str(refused.value)
        producer.push("0").result()


def test_a_serializer_that_fails_is_told_at_either_end(driver: thalweg.Driver, name: str) -> None:
    plugin = Plugin(f"{__name__}:Forgetful")
    topic = driver.create_topic(name, storage="memory", serializer=plugin)
    with topic.producer() as producer, pytest.raises(thalweg.InvalidEvent) as refused:
        producer.push({})
    assert "TypeError: serialize returns bytes, not NoneType" in str(refused.value)


def test_threads_that_push_do_not_wait_for_each_other_for_ever(
    driver: thalweg.Driver, name: str
) -> None:
    """A selector is called with the client's queue locked, and needs the GIL."""
    plugin = Plugin(f"{__name__}:Odd")
    topic = driver.create_topic(name, partitions=2, storage="memory", partition_selector=plugin)
    errors: list[BaseException] = []
    large = b"1" + b" " * 100_000
    with topic.producer(batch=7) as producer:

        def push(text: bytes) -> None:
            try:
                for _ in range(200):
                    producer.push(text).add_done_callback(lambda future: None)
            except BaseException as error:
                errors.append(error)

        threads = [threading.Thread(target=push, args=(text,)) for text in (b"0", b"1", large)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert not errors
        assert not any(thread.is_alive() for thread in threads)


@pytest.mark.usefixtures("energy")
@pytest.mark.parametrize("ordering", ["strict", "loose"])
def test_threads_of_a_producer_call_plugins(
    driver: thalweg.Driver, name: str, ordering: Any
) -> None:
    topic = create(
        driver, name, "energy:EnergyValidator", "energy:EnergySelector", "energy:EnergySerializer"
    )
    with topic.producer(threads=2, ordering=ordering) as producer:
        futures = [producer.push({"energy": number}) for number in range(100)]
        bad = producer.push({"energy": -1})
        ids = [future.result() for future in futures]
        with pytest.raises(thalweg.InvalidArgument, match="energy -1 is not from 0 to 100"):
            bad.result()
    assert [id.partition for id in ids] == [number // 25 for number in range(100)]
    if ordering == "strict":
        assert [id.offset for id in ids] == [number % 25 for number in range(100)]
    with pytest.raises(thalweg.InvalidArgument, match="strict or loose"):
        topic.producer(ordering="sorted")  # type: ignore[arg-type]
