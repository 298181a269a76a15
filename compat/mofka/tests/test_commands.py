"""`mofkactl`, `diaspora-ctl`, `bedrock` and the benchmarks, as scripts call them."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from diaspora_stream.api import Driver, Validator

BIN = Path(sys.executable).parent


def run(command: str, *arguments: object, status: int | None = 0, **environment: str) -> subprocess.CompletedProcess[str]:
    """Runs a command to its end; fails the test if it ends otherwise, or hangs."""
    done = subprocess.run([str(BIN / command), *map(str, arguments)], capture_output=True, text=True, timeout=100,
                          env={**os.environ, **environment})
    if status is not None:
        assert done.returncode == status, done.stdout + done.stderr
    return done


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., subprocess.Popen[bytes]]]:
    """Starts commands that go on; what still runs at the end of the test is ended."""
    started: list[subprocess.Popen[bytes]] = []

    def start(command: str, *arguments: object, **given: Any) -> subprocess.Popen[bytes]:
        with (tmp_path / f"{command}-{len(started)}.log").open("wb") as log:
            started.append(subprocess.Popen([str(BIN / command), *map(str, arguments)], stdout=log, stderr=log, **given))
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.wait()


def until(condition: Callable[[], Any]) -> Any:
    """What `condition` returns, once that is something. A watchdog ends the wait."""
    deadline = time.monotonic() + 60
    while not (found := condition()):
        assert time.monotonic() < deadline, "it never happened"
        time.sleep(0.01)
    return found


# mofkactl


def test_mofkactl_makes_topics_and_partitions(shared_server, current: Driver, name: str) -> None:
    group = ("--groupfile", shared_server.group_file)
    assert run("mofkactl", "topic", "create", name, *group).stdout == ""
    run("mofkactl", "partition", "add", name, "--type", "memory", "--rank", 0, *group)
    # As scripts of an older generation do it: with providers, whose locators they capture.
    words = []
    for noun in ("metadata", "data"):
        done = run("mofkactl", noun, "add", "--rank", 0, "--type", "map", "--config.path", "/tmp/x", *group)
        assert done.stdout.count("\n") == 1 and len(done.stdout.split()) == 1
        words.append(done.stdout.strip())
    run("mofkactl", "partition", "add", name, "-t", "default", "-r", "0", "--metadata", words[0], "--data", words[1],
        "-p", "__primary__", "--config.path", "/tmp/x", "--dependencies.pool", "p", "-g", shared_server.group_file)
    assert [partition["storage"] for partition in current.open_topic(name).partitions] == ["memory", "disk"]


def test_mofkactl_takes_options_with_dots(shared_server, current: Driver, name: str) -> None:
    run("mofkactl", "topic", "create", "-v", "schema", "--v.schema.type", "object", "--validator.schema.required", "a",
        "--v.schema.properties.a.type", "number", "--v.schema.required=a", "-p", "default", "-s", "default", name,
        "-g", shared_server.group_file, status=255)
    run("mofkactl", "topic", "create", "-v", "schema", "--v.schema.required", "a", "--v.schema.required", "b",
        "--v.schema.properties.a.minimum", "1.5", "--v.schema.additionalProperties", "false",
        "--v.schema.properties.b.const", "7", name, "-g", shared_server.group_file)
    schema = current.list_topics()[name]["validator"]["schema"]
    assert schema == {"required": ["a", "b"], "properties": {"a": {"minimum": 1.5}, "b": {"const": 7}},
                      "additionalProperties": False}


def test_mofkactl_says_what_is_wrong(shared_server, name: str, tmp_path: Path) -> None:
    group = ("--groupfile", shared_server.group_file)
    run("mofkactl", "topic", "create", name, *group)
    for arguments in (
        ("topic", "create", name, *group),
        ("topic", "create", name + "x", "-v", "schema", *group),
        ("topic", "create", name + "x", "-v", "no-such", *group),
        ("partition", "add", name + "x", "-r", "0", *group),
        ("partition", "add", name, "-r", shared_server.count, *group),
        ("partition", "add", name, "-r", "0", "--d.pool", "1", *group),
        ("metadata", "add", "-r", shared_server.count, *group),
        ("metadata", "add", "-r", "0", "-g", tmp_path / "nowhere.json"),
        ("topic", "create", name + "x", "--v.schema", *group[:0]),
    ):
        done = run("mofkactl", *arguments, status=255)
        assert done.stderr.startswith("Error: ") and done.stdout == ""
    assert run("mofkactl", "partition", "add", name, *group, status=2).stdout == ""
    assert "topic" in run("mofkactl", "--help").stdout
    done = subprocess.run([sys.executable, "-m", "mochi.mofka.mofkactl", "topic", "create", name, *map(str, group)],
                          capture_output=True, text=True)
    assert (done.returncode, done.stderr[:6]) == (255, "Error:")


# diaspora-ctl topic


def test_diaspora_ctl_makes_and_lists_topics(server, tmp_path: Path) -> None:
    config = tmp_path / "driver.json"
    config.write_text(json.dumps({"group_file": "wrong", "connect_timeout": 60}))
    to = ("--driver", "mofka", "--driver-config", config, "--driver.group_file", server.group_file)
    assert run("diaspora-ctl", "topic", "list", *to).stdout == ""
    assert run("diaspora-ctl", "topic", "create", "--name", "simple", *to).stdout == ""
    run("diaspora-ctl", "topic", "create", "--name", "parts", "--topic.num_partitions", 4, "--topic.config.type", "memory", *to)
    (tmp_path / "topic.json").write_text('{"num_partitions": 2, "config": {"type": "memory"}}')
    run("diaspora-ctl", "topic", "create", "--name", "by-file", "--topic-config", tmp_path / "topic.json",
        "--topic.num_partitions", 3, "--validator", "schema", "--validator.schema.required", "a,b",
        "--serializer", "default", "--partition-selector", "default", "--logging", "off", *to)
    assert run("diaspora-ctl", "topic", "list", *to).stdout == "by-file\nparts\nsimple\n"
    lines = run("diaspora-ctl", "topic", "list", "-v", *to).stdout.splitlines()
    described = {line.split(" ", 1)[0]: json.loads(line.split(" ", 1)[1]) for line in lines}
    assert {name: topic["num_partitions"] for name, topic in described.items()} == {"by-file": 3, "parts": 4, "simple": 0}
    assert described["by-file"]["validator"] == {"type": "schema", "schema": {"required": ["a", "b"]}}
    failed = run("diaspora-ctl", "topic", "create", "--name", "simple", *to, status=1)
    assert "simple" in failed.stderr and failed.stdout == ""


def test_diaspora_ctl_takes_its_driver_from_the_environment(shared_server, current: Driver, name: str) -> None:
    options = f"--driver mofka --driver.group_file {shared_server.group_file}"
    run("diaspora-ctl", "topic", "create", "--name", name, DIASPORA_CTL_DRIVER_OPTIONS=options)
    assert name in run("diaspora-ctl", "topic", "list", DIASPORA_CTL_DRIVER_OPTIONS=options).stdout.splitlines()


def test_diaspora_ctl_says_what_is_wrong(shared_server, tmp_path: Path) -> None:
    (tmp_path / "no.json").write_text("{")
    to = ("--driver", "mofka", "--driver.group_file", shared_server.group_file)
    for arguments in (
        (), ("topic",), ("sing",), ("topic", "sing"), ("topic", "create", *to), ("topic", "create", "--name", "x"),
        ("topic", "create", "--name", "x", "--driver", "kafka"), ("topic", "list", "--driver", "mofka"),
        ("topic", "create", "--name", "x", *to, "--topic-config", tmp_path / "no.json"),
        ("topic", "create", "--name", "x", *to, "--topic-config", tmp_path / "nowhere.json"),
        ("topic", "list", *to, "--driver.group_file"), ("topic", "list", *to, "--logging", "loud"),
        ("fifo", *to), ("forward",), ("forward", "--config", tmp_path / "nowhere.yaml"),
    ):
        assert run("diaspora-ctl", *arguments, status=1).stdout == "" or not arguments
    for arguments in (("--help",), ("topic", "create", "--help"), ("topic", "list", "--help"), ("fifo", "--help"),
                      ("forward", "--help")):
        assert "usage: diaspora-ctl" in run("diaspora-ctl", *arguments).stdout


# diaspora-ctl fifo


@pytest.fixture
def fifo(shared_server, start, tmp_path: Path) -> tuple[subprocess.Popen[bytes], Callable[[str], None]]:
    """A running `diaspora-ctl fifo`, and what sends it commands."""
    control = tmp_path / "control"
    process = start("diaspora-ctl", "fifo", "--driver", "mofka", "--driver.group_file", shared_server.group_file,
                    "--control-file", control, "--logging", "debug")
    until(control.is_fifo)

    def command(line: str) -> None:
        with control.open("w") as file:
            file.write(line + "\n")

    return process, command


def metadata_of(driver: Driver, topic: str, count: int) -> list[Any]:
    consumer = driver.open_topic(topic).consumer("check")
    return [consumer.pull().wait(timeout_ms=60_000).metadata for _ in range(count)]


def read_lines(path: Path, count: int) -> list[str]:
    """The next lines of a FIFO, which is read from now on."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    try:
        text = b""
        deadline = time.monotonic() + 60
        while text.count(b"\n") < count:
            assert time.monotonic() < deadline, text
            select.select([descriptor], [], [], 1)
            try:
                got = os.read(descriptor, 1 << 16)
            except BlockingIOError:
                continue
            if not got:
                time.sleep(0.01)
            text += got
    finally:
        os.close(descriptor)
    return text.decode().splitlines()[:count]


def test_lines_of_a_fifo_become_events(fifo, current: Driver, name: str, tmp_path: Path) -> None:
    process, command = fifo
    for format in ("raw", "json"):
        current.create_topic(f"{name}-{format}", options={"num_partitions": 1, "config": {"type": "memory"}})
    raw, parsed = tmp_path / "raw", tmp_path / "parsed"
    command(f"{raw} -> {name}-raw (batch_size=256)")
    command(f"{parsed} -> {name}-json (format=json, batch_size=1)")
    command(f"{tmp_path / 'none'} -> {name}-no-such-topic")
    command("this is no command")
    until(lambda: raw.is_fifo() and parsed.is_fifo())
    # Writers come and go.
    for line in ("first", 'with "quotes" and \\', "third"):
        with raw.open("w") as file:
            file.write(line + "\n")
    with parsed.open("w") as file:
        file.write('{"a": 1}\nno JSON\n\n[2]\n')
    assert metadata_of(current, f"{name}-raw", 3) == ["first", 'with "quotes" and \\', "third"]
    assert metadata_of(current, f"{name}-json", 2) == [{"a": 1}, [2]]
    assert process.poll() is None


def test_ending_the_fifos_flushes_what_was_written(fifo, current: Driver, name: str, tmp_path: Path) -> None:
    process, command = fifo
    current.create_topic(name, options={"num_partitions": 1, "config": {"type": "memory"}})
    command(f"{tmp_path / 'in'} -> {name} (batch_size=100000)")
    until((tmp_path / "in").is_fifo)
    with (tmp_path / "in").open("w") as file:
        file.write("".join(f"{i}\n" for i in range(500)) + "without an end")
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) == 0
    assert metadata_of(current, name, 501) == [str(i) for i in range(500)] + ["without an end"]
    assert not (tmp_path / "in").exists() and not (tmp_path / "control").exists()


def test_events_become_lines_of_a_fifo(fifo, current: Driver, name: str, tmp_path: Path) -> None:
    process, command = fifo
    current.create_topic(name, options={"num_partitions": 1, "config": {"type": "memory"}})
    producer = current.open_topic(name).producer()
    for value in ("a text", {"a": [1]}):
        producer.push(value if isinstance(value, dict) else json.dumps(value)).wait(60_000)
    out, as_json = tmp_path / "out", tmp_path / "as-json"
    os.mkfifo(out)
    os.mkfifo(as_json)
    command(f"{tmp_path / 'none'} <- {name}")
    command(f"{out} <- {name}")
    command(f"{as_json} <- {name} (format=json)")
    assert read_lines(out, 2) == ["a text", '{"a":[1]}']
    assert read_lines(as_json, 2) == ['"a text"', '{"a":[1]}']
    # A reader that comes again gets what comes from then on, and no half lines.
    producer.push('"later"').wait(60_000)
    assert read_lines(out, 1) == ["later"]
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) == 0
    assert out.is_fifo(), "it is the user's"


def test_a_slow_reader_of_a_fifo_loses_nothing(fifo, current: Driver, name: str, tmp_path: Path) -> None:
    _, command = fifo
    current.create_topic(name, options={"num_partitions": 1, "config": {"type": "memory"}})
    producer = current.open_topic(name).producer()
    for i in range(300):
        producer.push({"i": i, "text": "x" * 5000})
    producer.flush().wait(60_000)
    os.mkfifo(tmp_path / "out")
    command(f"{tmp_path / 'out'} <- {name} (format=json)")
    # Much more than fits into the pipe.
    time.sleep(0.3)
    lines = read_lines(tmp_path / "out", 300)
    assert [json.loads(line)["i"] for line in lines] == list(range(300))


def test_many_fifos_at_a_time(fifo, current: Driver, name: str, tmp_path: Path) -> None:
    _, command = fifo
    for i in range(3):
        current.create_topic(f"{name}-{i}", options={"num_partitions": 1, "config": {"type": "memory"}})
        command(f"{tmp_path / f'in{i}'} -> {name}-{i}")
    until(lambda: all((tmp_path / f"in{i}").is_fifo() for i in range(3)))

    def write(i: int) -> None:
        with (tmp_path / f"in{i}").open("w") as file:
            for line in range(200):
                file.write(f"{i}.{line}\n")
                file.flush()

    threads = [threading.Thread(target=write, args=(i,)) for i in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for i in range(3):
        assert metadata_of(current, f"{name}-{i}", 200) == [f"{i}.{line}" for line in range(200)]


# diaspora-ctl forward


def policies(path: Path, drivers: dict[str, Any], *forward: dict[str, str]) -> Path:
    # JSON is YAML.
    path.write_text(json.dumps({"drivers": drivers, "forward": list(forward)}))
    return path


def test_forwarding_between_servers(server, shared_server, current: Driver, start, name: str, tmp_path: Path) -> None:
    drivers = {
        "near": {"type": "mofka", "options": {"group_file": str(shared_server.group_file)}},
        "far": {"type": "thalweg", "options": {"group_file": str(server.group_file), "connect_timeout": 60}},
    }
    config = policies(tmp_path / "forward.yaml", drivers, {"from": f"near/{name}", "to": "far/all"},
                      {"from": f"near/{name}", "to": "far/parts", "data_selector": "forwarding:every_other"})
    (tmp_path / "forwarding.py").write_text(
        "def every_other(metadata, descriptor):\n    return descriptor if metadata['i'] % 2 else None\n"
    )
    current.create_topic(name, options={"num_partitions": 2, "config": {"type": "memory"}})
    producer = current.open_topic(name).producer()
    for i in range(100):
        producer.push({"i": i}, b"data" * i, partition=0)
    producer.flush().wait(60_000)
    with Driver(backend="mofka", options=drivers["far"]["options"]) as far:
        for topic in ("all", "parts"):
            far.create_topic(topic, options={"num_partitions": 1})
        forwarding = start("diaspora-ctl", "forward", "--config", config, env={**os.environ, "PYTHONPATH": str(tmp_path)})
        for topic, wanted in (("all", lambda i: b"data" * i), ("parts", lambda i: b"data" * i * (i % 2))):
            consumer = far.open_topic(topic).consumer("check")
            for i in range(100):
                event = consumer.pull().wait(timeout_ms=60_000)
                assert (event.metadata, bytes(event.data[0])) == ({"i": i}, wanted(i))
        forwarding.send_signal(signal.SIGTERM)
        assert forwarding.wait(60) == 0
        # Where it left off, it goes on: nothing twice, nothing left out.
        producer.push({"i": 101}, partition=0).wait(60_000)
        forwarding = start("diaspora-ctl", "forward", "--config", config, env={**os.environ, "PYTHONPATH": str(tmp_path)})
        assert far.open_topic("all").consumer("check2", options={"start_from": "latest"}) is not None
        assert consumer.pull().wait(timeout_ms=60_000).metadata == {"i": 101}
        forwarding.send_signal(signal.SIGINT)
        assert forwarding.wait(60) == 0


def test_what_the_destination_refuses_is_passed_over_and_said(shared_server, current: Driver, start, name: str, tmp_path: Path) -> None:
    drivers = {"d": {"type": "mofka", "options": {"group_file": str(shared_server.group_file)}}}
    config = policies(tmp_path / "forward.yaml", drivers, {"from": f"d/{name}", "to": f"d/{name}-to"})
    current.create_topic(name, options={"num_partitions": 1, "config": {"type": "memory"}})
    current.create_topic(name + "-to", validator=Validator.from_metadata(type="schema", schema={"required": ["a"]}),
                         options={"num_partitions": 1, "config": {"type": "memory"}})
    producer = current.open_topic(name).producer()
    for metadata in ({"a": 1}, {"b": 2}, {"a": 3}):
        producer.push(metadata).wait(60_000)
    forwarding = start("diaspora-ctl", "forward", "--config", config, "--logging", "warn")
    assert metadata_of(current, name + "-to", 2) == [{"a": 1}, {"a": 3}]
    forwarding.send_signal(signal.SIGTERM)
    assert forwarding.wait(60) == 0
    said = (tmp_path / "diaspora-ctl-0.log").read_text()
    assert said.count("\n") == 1 and "event 1 of" in said and "passed over" in said


def test_forwarding_that_can_not_be(shared_server, current: Driver, name: str, tmp_path: Path) -> None:
    drivers = {"d": {"type": "mofka", "options": {"group_file": str(shared_server.group_file)}}}
    current.create_topic(name)
    for config in (
        policies(tmp_path / "a.yaml", drivers, {"from": f"d/{name}", "to": "d/no-such-topic"}),
        policies(tmp_path / "b.yaml", drivers, {"from": f"d/{name}", "to": f"e/{name}"}),
        policies(tmp_path / "c.yaml", drivers, {"from": f"d/{name}"}),
        policies(tmp_path / "d.yaml", drivers, {"from": name, "to": f"d/{name}"}),
        policies(tmp_path / "e.yaml", {"d": {}}, {"from": f"d/{name}", "to": f"d/{name}"}),
        policies(tmp_path / "f.yaml", drivers, {"from": f"d/{name}", "to": f"d/{name}", "data_selector": "libx.so:f"}),
    ):
        assert run("diaspora-ctl", "forward", "--config", config, status=1).stderr


# bedrock


def bedrock_config(path: Path, group_file: Path, database: dict[str, Any]) -> Path:
    path.write_text(json.dumps({
        "libraries": ["libflock-bedrock-module.so", "libmofka-bedrock-module.so"],
        "margo": {"use_progress_thread": True},
        "providers": [
            {"name": "group_manager", "type": "flock", "provider_id": 1,
             "config": {"bootstrap": "self", "file": str(group_file), "group": {"type": "static"}}},
            {"__if__": "$MPI_COMM_WORLD.rank == 0", "name": "master", "provider_id": 2, "type": "yokan",
             "tags": ["mofka:master"], "config": {"database": database}},
            {"name": "io_controller", "type": "abt_io", "provider_id": 3, "config": {}},
        ],
    }))
    return path


@pytest.mark.parametrize("database", ["map", "rocksdb"])
def test_bedrock_starts_a_server(start, tmp_path: Path, database: str) -> None:
    group_file = tmp_path / "mofka.json"
    place = {"type": database, "config": {"path": str(tmp_path / "master"), "create_if_missing": True}}
    config = bedrock_config(tmp_path / "config.json", group_file, place)

    def exists_after_a_run() -> bool:
        process = start("bedrock", "ofi+tcp", "-c", config, "-v", "trace")
        until(group_file.exists)
        assert json.loads(group_file.read_text())["members"][0]["address"]
        with Driver(backend="mofka", options={"group_file": str(group_file), "connect_timeout": 60}) as driver:
            there = driver.topic_exists("frames")
            if not there:
                driver.create_topic("frames", options={"num_partitions": 1})
                assert driver.open_topic("frames").producer().push({}).wait(60_000) == 0
        status = json.loads(run("bedrock-query", "ofi+tcp", "-f", group_file, "-p").stdout)
        assert status
        run("bedrock-shutdown", "ofi+tcp", "-s", group_file)
        assert process.wait(60) == 0
        assert not group_file.exists()
        return there

    assert exists_after_a_run() is False
    assert exists_after_a_run() is (database == "rocksdb")
    said = [line for line in (tmp_path / "bedrock-0.log").read_text().splitlines() if line.startswith("bedrock:")]
    assert len(said) == 1
    assert all(word in said[0] for word in ("ofi+tcp", "margo", "libraries", "abt_io provider io_controller"))


def test_bedrock_ends_by_a_signal_and_takes_options_of_the_server(start, tmp_path: Path) -> None:
    config = bedrock_config(tmp_path / "config.json", tmp_path / "mofka.json", {"type": "map"})
    process = start("bedrock", "na+sm", "-c", config, "--", "--listen", "tcp://127.0.0.1:0")
    until((tmp_path / "mofka.json").exists)
    assert any(e.startswith("tcp://127.0.0.1") for e in json.loads((tmp_path / "mofka.json").read_text())["endpoints"])
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) == 0


def test_bedrock_says_what_is_wrong(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text("[1]")
    for config in (tmp_path / "a.json", tmp_path / "nowhere.json"):
        assert "bedrock: " in run("bedrock", "na+sm", "-c", config, status=1).stderr
    assert run("bedrock", "na+sm", status=2).stderr
    assert "bedrock-query: " in run("bedrock-query", "na+sm", "-f", tmp_path / "nowhere.json", status=1).stderr


# The benchmarks


def test_the_benchmarks(shared_server, current: Driver, name: str, tmp_path: Path) -> None:
    current.create_topic(name, options={"num_partitions": 2, "config": {"type": "memory"}})
    config = tmp_path / "driver.json"
    config.write_text(json.dumps({"group_file": str(shared_server.group_file)}))
    to = ("-d", "mofka", "-c", config, "-t", name)
    produced = run("diaspora-producer-benchmark", *to, "-n", 500, "-s", 1000, "-m", 100, "-b", 32, "-p", 2, "-f", 100).stdout
    assert "Number of events: 500\nData size: 1000\nMetadata size: 100\nBatch size: 32\n" in produced
    results = dict(line.split(": ") for line in produced.split("--- Benchmark Results ---\n")[1].splitlines())
    assert results["Total events"] == "500" and results["Throughput"].endswith(" events/s")
    assert float(results["Bandwidth"].split()[0]) > 0
    events = current.open_topic(name).consumer("check")
    event = events.pull().wait(60_000)
    assert len(json.dumps(event.metadata)) == 100 and len(event.data[0]) == 1000
    for more in ((), ("--data-selectivity", "0.5", "--data-interest", "0.5")):
        consumed = run("diaspora-consumer-benchmark", *to, "--num-events", 500, *more).stdout
        assert "Throughput: " in consumed and "Total events: 500" in consumed
    run("diaspora-producer-benchmark", "-d", "mofka", "-c", config, "-t", name + "x", status=255)
    run("diaspora-consumer-benchmark", *to, "-s", "2", status=2)
    assert "mpi4py" in run("diaspora-producer-benchmark", *to, status=255, PMI_SIZE="2").stderr
