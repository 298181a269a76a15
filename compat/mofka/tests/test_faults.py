"""Servers and programs that end in the middle of something."""

from __future__ import annotations

import contextlib
import mmap
import os
import shutil
import subprocess
import sys
import threading
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import thalweg
from diaspora_stream.api import Exception as MofkaException, TopicHandle
from mochi.mofka.client import MofkaDriver

if TYPE_CHECKING:
    from conftest import Dialect, Server


@pytest.fixture(autouse=True)
def losses_are_expected() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", thalweg.GapWarning)
        yield


def push(dialect: Dialect, topic: TopicHandle, count: int, first: int = 0) -> None:
    producer = dialect.producer(topic)
    for i in range(first, first + count):
        producer.push({"i": i}, f"data of {i}".encode())
    dialect.flush(producer)


# The server.


@pytest.mark.parametrize("end", ["killed", "stopped"])
def test_acknowledgements_survive_a_restart_of_the_server(dialect: Dialect, server: Server, name: str, end: str) -> None:
    with dialect.driver(server) as driver:
        topic = dialect.topic(driver, name, "disk")
        push(dialect, topic, 10)
        consumer = dialect.consumer(topic, "c")
        events = dialect.take(consumer, 6)
        events[5].acknowledge()
        events[1].acknowledge()
    server.kill() if end == "killed" else server.stop()
    server.start()
    with dialect.driver(server) as driver:
        topic = driver.open_topic(name)
        assert [e.event_id for e in dialect.take(dialect.consumer(topic, "c"), 4)] == [6, 7, 8, 9]
        assert [dialect.metadata(e)["i"] for e in dialect.take(dialect.consumer(topic, "new"), 10)] == list(range(10))
        assert dialect.wait(dialect.producer(topic).push({"i": 10})) == 10


def test_a_memory_topic_starts_again_with_its_server(dialect: Dialect, server: Server, name: str) -> None:
    with dialect.driver(server) as driver:
        topic = dialect.topic(driver, name, "memory")
        push(dialect, topic, 10)
        dialect.take(dialect.consumer(topic, "c"), 6)[-1].acknowledge()
    server.kill()
    server.start()
    with dialect.driver(server) as driver:
        assert driver.topic_exists(name), "the topic itself is not forgotten"
        topic = driver.open_topic(name)
        consumer = dialect.consumer(topic, "c")
        push(dialect, topic, 1, first=10)
        event = dialect.wait(consumer.pull())
        assert (event.event_id, dialect.metadata(event)) == (0, {"i": 10})


def test_programs_go_on_when_the_server_is_back(dialect: Dialect, server: Server, name: str) -> None:
    with dialect.driver(server) as driver:
        topic = dialect.topic(driver, name, "disk")
        producer, consumer = dialect.producer(topic), dialect.consumer(topic, "c")
        for i in range(10):
            producer.push({"i": i})
        dialect.flush(producer)
        server.kill()
        futures = [producer.push({"i": i}) for i in range(10, 20)]
        server.start()
        dialect.flush(producer)
        assert [dialect.wait(future) for future in futures] == list(range(10, 20))
        assert [dialect.metadata(e)["i"] for e in dialect.take(consumer, 20)] == list(range(20))


def test_a_server_that_is_killed_amid_a_flush_is_an_error(dialect: Dialect, server: Server, name: str, storage: str) -> None:
    driver = dialect.driver(server)
    topic = dialect.topic(driver, name, storage)
    push(dialect, topic, 1)
    producer = dialect.producer(topic, batch_size=1000, options={"ack_timeout": 2.0})
    server.pause()
    futures = [producer.push({"i": i}, bytes(100_000)) for i in range(20)]
    outcome: list[BaseException] = []

    def flush() -> None:
        try:
            dialect.flush(producer)
        except MofkaException as error:
            outcome.append(error)

    flushing = threading.Thread(target=flush)
    flushing.start()
    flushing.join(0.2)
    assert flushing.is_alive(), "the server does nothing, so nothing is flushed"
    server.kill()
    flushing.join(60)
    assert not flushing.is_alive() and len(outcome) == 1
    with pytest.raises(MofkaException):
        dialect.wait(futures[-1])
    with pytest.raises(MofkaException):
        driver.close(timeout=1.0)


def test_a_pull_from_a_server_that_is_gone_times_out(dialect: Dialect, server: Server, name: str) -> None:
    driver = dialect.driver(server)
    consumer = dialect.consumer(dialect.topic(driver, name, "disk"), "c")
    server.kill()
    assert consumer.pull().wait(timeout_ms=50) is None
    server.start()
    push(dialect, driver.open_topic(name), 1)
    assert dialect.wait(consumer.pull()).event_id == 0


def namespaces() -> tuple[str, ...] | None:
    """What runs a command in a mount namespace of its own, if this machine lets us."""
    if shutil.which("unshare") is None:
        return None
    for wrapper in (("unshare", "-m"), ("unshare", "-r", "-m")):
        tried = subprocess.run([*wrapper, "mount", "-t", "tmpfs", "tmpfs", "/mnt"], capture_output=True)
        if tried.returncode == 0:
            return wrapper
    return None


def test_a_full_disk_makes_the_flush_fail(dialect: Dialect, serve, tmp_path: Path, name: str) -> None:
    wrapper = namespaces()
    if wrapper is None:
        pytest.skip("no file system of a few megabytes can be had: mount namespaces are not allowed here")
    data = tmp_path / "small"
    data.mkdir()
    # The socket must lie where both sides see it.
    mounted = f'mount -t tmpfs -o size=24m tmpfs "{data}" && exec "$@" --listen "unix://{tmp_path}/socket"'
    server = serve(data=data / "data", wrapper=(*wrapper, "sh", "-c", mounted, "sh"))
    driver = dialect.driver(server)
    topic = dialect.topic(driver, name, "disk")
    stored = dialect.wait(dialect.producer(topic).push({"i": 0}, b"a little"))
    producer = dialect.producer(topic, options={"ack_timeout": 4.0})
    with pytest.raises(MofkaException, match="storage is full"):
        for i in range(1, 64):
            producer.push({"i": i}, os.urandom(1 << 20))
        dialect.flush(producer)
    # Nothing that was acknowledged is lost by it.
    event = dialect.wait(dialect.consumer(topic, "c").pull())
    assert (event.event_id, bytes(event.data[0])) == (stored, b"a little")
    with contextlib.suppress(MofkaException):
        driver.close(timeout=1.0)


# The program.


def test_a_producer_that_is_killed_amid_a_batch_leaves_whole_events(shared_server, dialect: Dialect, driver, name: str, storage: str) -> None:
    topic = dialect.topic(driver, name, storage)
    code = """
import sys
from mochi.mofka.client import MofkaDriver
producer = MofkaDriver(group_file=sys.argv[1]).open_topic(sys.argv[2]).producer(batch_size=64)
i = 0
while True:
    future = producer.push({"i": i}, str(i).encode() * 5000)
    i += 1
    if i % 64 == 10 and i > 200:
        print(i, flush=True)
"""
    process = subprocess.Popen([sys.executable, "-c", code, str(shared_server.group_file), name],
                               stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert int(process.stdout.readline()) > 200
    process.kill()
    process.wait()
    process.stdout.close()
    dialect.wait(dialect.producer(topic).push({"i": "last"}))
    consumer = dialect.consumer(topic, "c")
    count = 0
    while True:
        event = dialect.wait(consumer.pull())
        assert event.event_id == count
        if dialect.metadata(event)["i"] == "last":
            break
        assert dialect.metadata(event)["i"] == count
        assert bytes(event.data[0]) == str(count).encode() * 5000
        count += 1
    assert count % 64 == 0, "batches come whole or not at all"


def test_a_fork_after_the_driver_was_made(dialect: Dialect, driver, name: str, storage: str) -> None:
    topic = dialect.topic(driver, name, storage)
    producer, consumer = dialect.producer(topic), dialect.consumer(topic, "c")
    dialect.wait(producer.push({"i": 0}, b"of the parent"))
    dialect.take(consumer, 1)[0].acknowledge()
    consumer._settle(60.0)
    # Somebody holds the locks when the fork happens.
    pulling = threading.Thread(target=lambda: dialect.consumer(topic, "other").pull().wait(timeout_ms=200))
    pulling.start()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            inherited = dialect.wait(producer.push({"i": 1}, b"of the child"))
            own = dialect.producer(driver.open_topic(name))
            other = dialect.wait(own.push({"i": 2}))
            seen = [dialect.metadata(event)["i"] for event in dialect.take(consumer, 2)]
            driver.close()
            status = 0 if (inherited, other, seen) == (1, 2, [1, 2]) else 2
        finally:
            os._exit(status)
    _, status = os.waitpid(child, 0)
    pulling.join()
    assert os.waitstatus_to_exitcode(status) == 0
    assert dialect.wait(producer.push({"i": 3})) == 3
    assert [dialect.metadata(event)["i"] for event in dialect.take(consumer, 3)] == [1, 2, 3]


def test_processes_of_a_pool_make_their_own(shared_server, dialect: Dialect, driver, name: str, run_script) -> None:
    """A driver that is made, or used for the first time, in a worker."""
    dialect.topic(driver, name)
    code = """
import sys
from concurrent.futures import ProcessPoolExecutor
from mochi.mofka.client import *

driver = MofkaDriver(group_file=sys.argv[1], use_progress_thread=False)

def produce(count):
    driver.start_progress_thread()
    producer = driver.open_topic(sys.argv[2]).producer(batch_size=AdaptiveBatchSize, thread_pool=ThreadPool(1), ordering=Ordering.Strict)
    for i in range(count):
        producer.push(f'"event {i}"')
    producer.flush()
    return count

def consume(count):
    driver.start_progress_thread()
    consumer = driver.open_topic(sys.argv[2]).consumer(
        name="c", thread_pool=ThreadPool(0), batch_size=AdaptiveBatchSize,
        data_broker=ByteArrayAllocator, data_selector=FullDataSelector)
    return [consumer.pull().wait().metadata for _ in range(count)]

with ProcessPoolExecutor(max_workers=2) as pool:
    consumed, produced = pool.submit(consume, 20), pool.submit(produce, 20)
    print(produced.result(), consumed.result() == [f'"event {i}"' for i in range(20)])
"""
    done = run_script(code, shared_server.group_file, name)
    assert done.stdout == "20 True\n", done.stderr


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_what_a_task_captures_works_where_it_runs(shared_server, dialect: Dialect, driver, name: str, run_script, method: str) -> None:
    """Pickled: a driver, a topic, a producer and a consumer connect where they arrive."""
    dialect.topic(driver, name)
    code = """
import multiprocessing, pickle, sys
from mochi.mofka.client import MofkaDriver

def task(pickled):
    producer, consumer, topic, driver = pickle.loads(pickled)
    assert producer.topic == topic and topic.driver is driver
    id = producer.push({"i": 1}).wait()
    event = consumer.pull().wait()
    return id, event.event_id, producer.name, consumer.name

if __name__ == "__main__":
    driver = MofkaDriver(sys.argv[1])
    topic = driver.open_topic(sys.argv[2])
    captured = pickle.dumps((topic.producer("p", 10), topic.consumer("c"), topic, driver))
    with multiprocessing.get_context(sys.argv[3]).Pool(1) as pool:
        print(pool.apply(task, (captured,)))
"""
    done = run_script(code, shared_server.group_file, name, method)
    assert done.stdout == "(0, 0, 'p', 'c')\n", done.stderr


# Large.


def test_an_event_of_more_than_4_gib(serve, name: str) -> None:
    """Once, not for every dialect: that many bytes take their time."""
    size = (4 << 30) + 4096
    lines = Path("/proc/meminfo").read_text().splitlines()
    free = 1024 * int(next(line for line in lines if line.startswith("MemAvailable")).split()[1])
    if free < 7 << 30:
        pytest.skip(f"the server would keep 4 GiB in memory, and {free >> 20} MiB are free")
    with MofkaDriver(group_file=str(serve().group_file), connect_timeout=60.0) as driver:
        driver.create_topic(name, options={"num_partitions": 1, "config": {"type": "memory"}})
        topic = driver.open_topic(name)
        # Pages that nobody has written to take no memory here.
        with mmap.mmap(-1, size) as data:
            data[(4 << 30) - 3 : (4 << 30) + 3] = b"border"
            data[size - 7 :] = b"far end"
            assert topic.producer().push({"size": size}, data).wait() == 0
        consumer = topic.consumer(
            "c",
            data_selector=lambda m, d: d.make_unstructured_view([((4 << 30) - 3, 6), (m["size"] - 7, 7)]),
            data_allocator=lambda m, d: [bytearray(d.size)],
        )
        event = consumer.pull().wait()
        assert event.data == [b"borderfar end"] and event.metadata == {"size": size}
