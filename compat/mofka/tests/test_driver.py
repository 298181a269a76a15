"""Drivers and topics: how they are made, in each dialect, and what they tell."""

from __future__ import annotations

import json
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import diaspora_stream.api as diaspora
import mochi.mofka.client as mofka
import thalweg
from diaspora_stream.api import Driver, Exception as MofkaException, TopicHandle
from mochi.mofka.client import MofkaDriver
from thalweg_mofka import Dialect as Generation


# Backends.


@pytest.mark.parametrize("backend", ["mofka", "mofka:libmofka.so", "thalweg", "thalweg:libthalweg.so"])
def test_a_known_backend_makes_a_driver(backend: str, shared_server) -> None:
    with Driver(backend=backend, options={"group_file": str(shared_server.group_file)}) as driver:
        assert isinstance(driver, Driver)


@pytest.mark.parametrize("backend", ["unknown", "unknown:libunknown.so", "unknown:libmofka.so", "mofka:libother.so"])
def test_an_unknown_backend_or_library_is_refused(backend: str, shared_server) -> None:
    with pytest.raises(MofkaException, match="unknown|libother"):
        Driver(backend=backend, options={"group_file": str(shared_server.group_file)})


def test_a_driver_needs_a_group_file(tmp_path: Path) -> None:
    with pytest.raises(MofkaException, match="group_file"):
        MofkaDriver(group_file=None)
    with pytest.raises(MofkaException, match="nowhere.json"):
        MofkaDriver(group_file=str(tmp_path / "nowhere.json"), connect_timeout=0.2)


def test_a_server_in_this_process(tmp_path: Path) -> None:
    with Driver(backend="thalweg", options={"directory": str(tmp_path)}) as driver:
        driver.create_topic("frames", options={"num_partitions": 1})
        assert driver.open_topic("frames").producer().push({}).wait() == 0


# The constructor rule.


def test_how_a_driver_is_made_tells_the_dialect(shared_server) -> None:
    path = str(shared_server.group_file)
    made = [
        (MofkaDriver(path), Generation.LEGACY),
        (MofkaDriver(path, object()), Generation.LEGACY),
        (MofkaDriver(path, use_progress_thread=True), Generation.LEGACY),
        (MofkaDriver(group_file=path, use_progress_thread=False), Generation.LEGACY),
        (Driver.new("mofka", {"group_file": path}), Generation.MIDDLE),
        (Driver(backend="mofka", options={"group_file": path}), Generation.CURRENT),
        (MofkaDriver(group_file=path), Generation.CURRENT),
        (MofkaDriver({"group_file": path}), Generation.CURRENT),
        (MofkaDriver(group_file=path, margo={"use_progress_thread": True}), Generation.CURRENT),
    ]
    for driver, generation in made:
        assert driver.dialect is generation
        driver.close()


def test_an_option_overrules_the_call_and_the_environment(shared_server, monkeypatch) -> None:
    path = str(shared_server.group_file)
    monkeypatch.setenv("THALWEG_MOFKA_DIALECT", "middle")
    with MofkaDriver(path) as driver:
        assert driver.dialect is Generation.MIDDLE
    with MofkaDriver(path, dialect="current") as driver:
        assert driver.dialect is Generation.CURRENT
    monkeypatch.setenv("THALWEG_MOFKA_DIALECT", "klingon")
    with pytest.raises(MofkaException, match="klingon.*legacy, middle, current"):
        MofkaDriver(path)


def test_older_names_of_the_driver(shared_server) -> None:
    path = str(shared_server.group_file)
    with warnings.catch_warnings():
        warnings.simplefilter("error", DeprecationWarning)
        with pytest.raises(DeprecationWarning):
            mofka.ServiceHandle(path)
        with pytest.raises(DeprecationWarning):
            mofka.Client("na+sm")
    with pytest.warns(DeprecationWarning):
        with mofka.Client("na+sm").connect(path) as driver:
            assert isinstance(driver, MofkaDriver) and driver.dialect is Generation.LEGACY
    with pytest.raises(NotImplementedError):
        mofka.KafkaDriver("kafka.json")
    with pytest.raises(ValueError, match="engine"):
        MofkaDriver(path, object(), use_progress_thread=True)


def test_names_that_programs_import() -> None:
    for name in ["ClientException", "Exception", "AdaptiveBatchSize", "Driver", "Validator", "ThreadPool",
                 "Ordering", "Serializer", "PartitionSelector", "TopicHandle", "Producer", "Consumer",
                 "DataDescriptor", "Event", "FutureUint", "FutureEvent", "FullDataSelector", "ByteArrayAllocator"]:
        assert getattr(diaspora, name) is getattr(mofka, name)
    assert issubclass(mofka.Exception, RuntimeError) and mofka.Exception is mofka.ClientException
    assert mofka.AdaptiveBatchSize == 2**64 - 1


# Topics.


def test_the_life_of_a_topic(dialect, driver: Driver, name: str, storage: str) -> None:
    assert driver.topic_exists(name) is False
    with pytest.raises(MofkaException, match=name):
        driver.open_topic(name)
    topic = dialect.topic(driver, name, storage)
    assert driver.topic_exists(name) is True
    assert isinstance(topic, TopicHandle) and topic.name == name
    with pytest.raises(MofkaException, match=name):
        driver.create_topic(name)
    with pytest.raises(MofkaException):
        driver.open_topic(name + "-other")
    [partition] = topic.partitions
    assert set(partition) >= {"uuid", "address", "provider_id"}
    assert partition["storage"] == storage
    assert driver.open_topic(name) == topic and topic.partitions == driver.open_topic(name).partitions


def test_what_is_listed_of_topics(dialect, driver: Driver, name: str, storage: str) -> None:
    validator = mofka.Validator.from_metadata(type="schema", schema={"type": "object"})
    dialect.topic(driver, name + "a", storage, validator=validator)
    dialect.topic(driver, name + "b", storage, partitions=3)
    topics = driver.list_topics()
    assert topics[name + "a"]["num_partitions"] == 1 and topics[name + "b"]["num_partitions"] == 3
    for listed in (topics[name + "a"], topics[name + "b"]):
        for component in ("validator", "serializer", "partition_selector"):
            assert isinstance(listed[component]["type"], str)
    assert topics[name + "a"]["validator"]["schema"] == {"type": "object"}


def test_what_is_wrong_with_a_topic_is_said(driver: Driver, name: str) -> None:
    for wrong in (-1, "two", True):
        with pytest.raises(MofkaException, match="num_partitions"):
            driver.create_topic(name, options={"num_partitions": wrong})
    with pytest.raises(MofkaException, match="granite"):
        driver.create_topic(name, options={"num_partitions": 1, "config": {"type": "granite"}})
    with pytest.raises(MofkaException):
        driver.create_topic("a/b")
    assert not driver.topic_exists(name)


def test_camel_case_as_in_print(driver: Driver, name: str) -> None:
    driver.createTopic(name, options={"num_partitions": 1, "config": {"type": "memory"}})
    assert driver.topicExists(name) and name in driver.listTopics()
    assert driver.openTopic(name) == driver.open_topic(name)


@pytest.mark.parametrize("kind", ["memory", "default", "legacy"])
def test_partitions_of_each_type_at_creation(current: Driver, name: str, kind: str) -> None:
    options = {"num_partitions": 2, "config": {"type": kind, "partition": {"path": "/tmp/x"}},
               "dependencies": {"io_controller": "my_abt_io", "metadata": "m@local", "data": "d@local"}}
    current.create_topic(name, options=options)
    topic = current.open_topic(name)
    assert len(topic.partitions) == 2 and len({p["uuid"] for p in topic.partitions}) == 2
    assert {p["storage"] for p in topic.partitions} == {"memory" if kind == "memory" else "disk"}


def test_a_partition_that_needs_no_sync_is_written(current: Driver, name: str) -> None:
    current.create_topic(name, options={"num_partitions": 1, "config": {"type": "default", "partition": {"sync": False}}})
    assert current.open_topic(name).partitions[0]["durability"] == "written"


def test_partitions_that_are_added(driver: Driver, name: str) -> None:
    driver.create_topic(name)
    assert driver.open_topic(name).partitions == []
    metadata, data = driver.add_metadata_provider(0), driver.add_data_provider(0)
    for provider in (metadata, data, driver.add_default_metadata_provider(0), driver.add_default_data_provider(0)):
        assert provider and not set(provider) & set(" \t\n")
    driver.add_memory_partition(name, 0, "__primary__")
    driver.add_default_partition(name, 0, metadata, data, {"path": "/tmp/x"}, "__primary__")
    driver.add_default_partition(topic_name=name, server_rank=0, abt_io_instance="io", partition_config={}, pool_name="")
    driver.add_legacy_partition(topic_name=name, server_rank=0, metadata_provider=metadata, data_provider=data)
    driver.add_legacy_partition(name, 0)
    driver.add_custom_partition(name, 0, "memory", {}, {}, "__primary__")
    driver.add_custom_partition(name, 0, partition_type="default", dependencies={"pool": "__primary__"})
    storages = [partition["storage"] for partition in driver.open_topic(name).partitions]
    assert storages == ["memory", "disk", "disk", "disk", "disk", "memory", "disk"]


def test_a_partition_needs_a_topic_and_a_server(driver: Driver, name: str) -> None:
    servers = driver.num_servers
    with pytest.raises(MofkaException, match=name):
        driver.add_memory_partition(name, 0)
    driver.create_topic(name)
    for add in (driver.add_memory_partition, driver.add_default_partition, driver.add_legacy_partition):
        with pytest.raises(MofkaException, match=f"rank.{servers}"):
            add(name, servers)
    with pytest.raises(MofkaException, match=f"rank.{servers}"):
        driver.add_metadata_provider(servers)
    assert driver.open_topic(name).partitions == []


def test_a_partition_is_on_the_server_of_its_rank(shared_server, driver: Driver, name: str) -> None:
    assert driver.num_servers == shared_server.count
    driver.create_topic(name)
    opened = driver.open_topic(name)
    producer = opened.producer("early")
    consumer = opened.consumer("early")
    for rank in reversed(range(driver.num_servers)):
        before = topics_by_rank(shared_server)
        driver.add_memory_partition(name, rank)
        after = topics_by_rank(shared_server)
        assert [at for at in after if after[at] != before[at]] == ([rank] if after else [])
    # Each of them is used by who opened the topic when it had none.
    for i in range(driver.num_servers):
        producer.push({"i": i}).wait(60_000)
    metadata = [consumer.pull().wait(60_000).metadata for _ in range(driver.num_servers)]
    found = [json.loads(one) if isinstance(one, str) else one for one in metadata]
    assert sorted(one["i"] for one in found) == list(range(driver.num_servers))


def topics_by_rank(server: Any) -> dict[int, int]:
    """How many topics are on each server of a cluster; empty of one that is alone."""
    with thalweg.Driver(str(server.group_file)) as native:
        return {int(node.labels["rank"]): node.topics for node in native.list_nodes()}


# Thread pools.


def test_pools(driver: Driver) -> None:
    assert isinstance(driver.default_thread_pool, mofka.ThreadPool)
    assert driver.make_thread_pool(2).thread_count == 2
    assert mofka.ThreadPool().thread_count == 0 and mofka.ThreadPool(thread_count=3).thread_count == 3
    with pytest.raises(ValueError):
        mofka.ThreadPool(-1)


# Installations side by side.


def test_the_namespace_is_open_to_others(run_script, tmp_path: Path) -> None:
    (tmp_path / "mochi" / "warabi").mkdir(parents=True)
    (tmp_path / "mochi" / "warabi" / "__init__.py").write_text("here = True\n")
    done = run_script("import mochi.warabi, mochi.mofka.client\nprint(mochi.warabi.here)\n", PYTHONPATH=str(tmp_path))
    assert (done.returncode, done.stdout) == (0, "True\n"), done.stderr


@pytest.mark.parametrize(
    "module, theirs",
    [
        ("mochi.mofka.client", "pymofka_client.py"),
        ("diaspora_stream.api", "pydiaspora_stream_api.py"),
        ("mochi.mofka.client", "mochi/mofka/client.py"),
    ],
)
def test_a_real_installation_is_not_hidden(run_script: Callable[..., subprocess.CompletedProcess[str]],
                                           tmp_path: Path, module: str, theirs: str) -> None:
    file = tmp_path / "theirs" / theirs
    file.parent.mkdir(parents=True)
    file.write_text("")
    # Behind ours on the path, as where both are installed.
    code = f"import sys\nsys.path.append({str(tmp_path / 'theirs')!r})\nimport {module}\nprint('imported')\n"
    done = run_script(code)
    assert done.returncode != 0 and "ImportError" in done.stderr
    assert "hide a real installation" in done.stderr and "THALWEG_MOFKA_ALLOW_SHADOWING" in done.stderr
    assert run_script(code, THALWEG_MOFKA_ALLOW_SHADOWING="1").stdout == "imported\n"


def test_importing_costs_no_connection() -> None:
    done = subprocess.run([sys.executable, "-c", "import mochi.mofka.client"], capture_output=True, text=True)
    assert (done.returncode, done.stdout + done.stderr) == (0, "")
