"""Producers, consumers and drivers in children of a fork."""

from __future__ import annotations

from typing import Any

import thalweg

PRELUDE = """
import os, sys
import thalweg

driver = thalweg.Driver(sys.argv[1], connect_timeout=60)
topic = driver.create_topic(sys.argv[2], storage="memory", exist_ok=True)

def in_child(work):
    sys.stdout.flush()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            work()
            status = 0
        finally:
            sys.stdout.flush()
            os._exit(status)
    _, status = os.waitpid(child, 0)
    assert status == 0, f"the child ended with {status}"
"""


def metadata(driver: thalweg.Driver, name: str, count: int) -> list[Any]:
    with driver.open_topic(name).consumer("reader") as consumer:
        events = []
        for _ in range(count):
            event = consumer.pull(timeout=60)
            assert event is not None, f"{len(events)} of {count} events came"
            events.append(event.metadata)
        assert consumer.pull(timeout=0) is None
        return events


def test_parent_and_child_push(
    shared_server: Any, driver: thalweg.Driver, name: str, run_script: Any
) -> None:
    code = """
producer = topic.producer()
producer.push({"who": "parent", "i": 0}).result()

def work():
    producer.push({"who": "child", "i": 0}).result(timeout=60)
    producer.push_many([{"who": "child", "i": i} for i in range(1, 1000)])
    producer.flush()
    print("ids differ:", producer.id != parent)

parent = producer.id
for round in range(5):
    in_child(work)
    producer.push({"who": "parent", "i": round + 1})
producer.close()
in_child(lambda: topic.producer().push({"who": "orphan"}).result(timeout=60))
"""
    done = run_script(PRELUDE + code, shared_server.group_file, name)
    assert done.stdout == "ids differ: True\n" * 5, done.stderr
    events = metadata(driver, name, 6 + 5 * 1000 + 1)
    assert [e["i"] for e in events if e["who"] == "parent"] == list(range(6))
    assert [e["i"] for e in events if e["who"] == "child"] == list(range(1000)) * 5


def test_the_parents_futures_are_the_parents(
    shared_server: Any, name: str, run_script: Any
) -> None:
    code = """
producer = topic.producer(batch=1000)
future = producer.push({})
known = topic.producer().push({})
known.result()

def work():
    try:
        future.result(timeout=60)
    except thalweg.Forked:
        print("forked")
    print(known.done(), known.result().offset)

in_child(work)
print(future.result(timeout=60).offset)
"""
    done = run_script(PRELUDE + code, shared_server.group_file, name)
    assert done.stdout == "forked\nTrue 0\n1\n", done.stderr


def test_a_consumer_begins_again_at_its_cursor(
    shared_server: Any, name: str, run_script: Any
) -> None:
    code = """
with topic.producer() as producer:
    producer.push_many([{"i": i} for i in range(100)])
consumer = topic.consumer("viewer")
for event in consumer:
    if event.metadata["i"] == 9:
        event.acknowledge()
        break
consumer.flush()

def work():
    print([consumer.pull(timeout=60).metadata["i"] for _ in range(3)])

in_child(work)
print([consumer.pull(timeout=60).metadata["i"] for _ in range(3)])
"""
    done = run_script(PRELUDE + code, shared_server.group_file, name)
    assert done.stdout == "[10, 11, 12]\n" * 2, done.stderr


def test_children_of_multiprocessing_drain_when_they_end(
    shared_server: Any, driver: thalweg.Driver, name: str, run_script: Any
) -> None:
    code = """
import multiprocessing

def work(worker):
    producer = topic.producer(batch=100_000)
    for i in range(100):
        producer.push({"worker": worker, "i": i})
    # It ends without a flush or a close.

fork = multiprocessing.get_context("fork")
children = [fork.Process(target=work, args=(worker,)) for worker in range(3)]
for child in children:
    child.start()
for child in children:
    child.join()
    assert child.exitcode == 0
"""
    done = run_script(PRELUDE + code, shared_server.group_file, name)
    assert done.returncode == 0, done.stderr
    events = metadata(driver, name, 300)
    for worker in range(3):
        assert [e["i"] for e in events if e["worker"] == worker] == list(range(100))


def test_an_embedded_server_stays_with_the_parent(tmp_path: Any, run_script: Any) -> None:
    code = """
import os, sys
import thalweg

driver = thalweg.Driver.embedded(sys.argv[1], connect_timeout=0.2)
topic = driver.create_topic("t")
child = os.fork()
if child == 0:
    try:
        topic.producer()
    except thalweg.Unreachable:
        os._exit(7)
    os._exit(1)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
print(topic.producer().push({}).result(timeout=60).offset)
"""
    done = run_script(code, tmp_path / "data")
    assert done.stdout == "7\n0\n", done.stderr


def test_children_live_whatever_the_parents_threads_are_at(
    shared_server: Any, name: str, run_script: Any
) -> None:
    # The standard library of Rust and the C library both have moments, as a thread
    # begins or ends, at which a fork leaves the child with what hangs or breaks it.
    code = """
import threading
producer = topic.producer()
queue = topic.queue("queue")
is_over = threading.Event()

def connect():
    while not is_over.is_set():
        with thalweg.Driver(sys.argv[1], connect_timeout=60) as other:
            other.open_topic(sys.argv[2]).producer().push().result(timeout=100)

def work():
    producer.push(data=bytes(200_000)).result(timeout=100)
    with thalweg.Driver(sys.argv[1], connect_timeout=60) as other:
        other.open_topic(sys.argv[2])

threads = [threading.Thread(target=connect) for _ in range(3)]
for thread in threads:
    thread.start()
for _ in range(150):
    in_child(work)
is_over.set()
for thread in threads:
    thread.join()
print("done")
"""
    done = run_script(PRELUDE + code, shared_server.group_file, name)
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr
