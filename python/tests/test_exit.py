"""What was pushed is drained when the interpreter ends, however it ends."""

from __future__ import annotations

from typing import Any

import pytest

import thalweg

PRELUDE = """
import sys, threading
import thalweg

driver = thalweg.Driver(sys.argv[1], connect_timeout=60)
topic = driver.create_topic(sys.argv[2], storage="memory")
producer = topic.producer(batch=100_000)

def push():
    for i in range(1000):
        producer.push({"i": i}, bytes(100))
"""

ENDS = {
    "falls off the end": "push()",
    "sys.exit": "push(); sys.exit(0)",
    "an exception": "push(); sys.excepthook = lambda *_: None; 1 / 0",
    "a thread pushes": "thread = threading.Thread(target=push); thread.start(); thread.join()",
    "nothing is referenced": "push(); del producer, topic, driver",
    "callbacks are waited for": """
def done(future):
    print(future.result().offset)
push()
producer.push({}).add_done_callback(done)
""",
}


@pytest.mark.parametrize("end", ENDS)
def test_nothing_is_lost(
    shared_server: Any, driver: thalweg.Driver, name: str, run_script: Any, end: str
) -> None:
    done = run_script(PRELUDE + ENDS[end], shared_server.group_file, name)
    assert done.returncode in (0, 1) and not done.stderr, done.stderr
    with driver.open_topic(name).consumer("reader") as consumer:
        for i in range(1000):
            event = consumer.pull(timeout=60)
            assert event is not None and event.metadata == {"i": i}
    if "callbacks" in end:
        assert done.stdout == "1000\n"


def test_acknowledgements_are_drained_too(
    shared_server: Any, driver: thalweg.Driver, name: str, run_script: Any
) -> None:
    code = """
push()
producer.flush()
consumer = topic.consumer("viewer")
for event in consumer:
    event.acknowledge()
    if event.metadata["i"] == 499:
        break
"""
    done = run_script(PRELUDE + code, shared_server.group_file, name)
    assert done.returncode == 0 and not done.stderr, done.stderr
    [cursor] = driver.cursors(driver.open_topic(name), "viewer")
    assert cursor.offset == 500


def test_an_embedded_server_is_drained(tmp_path: Any, run_script: Any) -> None:
    code = """
import sys
import thalweg

topic = thalweg.Driver.embedded(sys.argv[1]).create_topic("t", exist_ok=True)
producer = topic.producer(batch=100_000)
producer.push_many([{"i": i} for i in range(1000)])
"""
    done = run_script(code, tmp_path / "data")
    # The server warns of a disk that is nearly full, which is the machine's.
    said = [line for line in done.stderr.splitlines() if " % full: " not in line]
    assert done.returncode == 0 and not said, done.stderr
    with thalweg.Driver.embedded(tmp_path / "data") as driver:
        with driver.open_topic("t").consumer("viewer") as consumer:
            for i in range(1000):
                event = consumer.pull(timeout=60)
                assert event is not None and event.metadata == {"i": i}


def test_a_program_may_connect_as_it_ends(
    shared_server: Any, driver: thalweg.Driver, name: str, run_script: Any
) -> None:
    """Where the interpreter starts no threads any more."""
    code = """
import atexit, sys
import concurrent.futures.thread
import thalweg

@atexit.register
def last_words():
    driver = thalweg.Driver(sys.argv[1], connect_timeout=60)
    producer = driver.create_topic(sys.argv[2], storage="memory").producer()
    producer.push({"said": "at the end"})
    producer.flush()
"""
    done = run_script(code, shared_server.group_file, name)
    assert done.returncode == 0 and not done.stderr, done.stderr
    with driver.open_topic(name).consumer("reader") as consumer:
        event = consumer.pull(timeout=60)
    assert event is not None and event.metadata == {"said": "at the end"}


@pytest.mark.parametrize(
    "seen",
    [
        "producer.push({}).result(60)",
        "raise producer.push({}).exception(60)",
        "producer.push({}); producer.flush()",
        "producer.push({}); producer.begin_flush().result(60)",
        "producer.push({}); producer.close()",
    ],
)
def test_a_failure_that_was_raised_is_not_told_again(
    shared_server: Any, driver: thalweg.Driver, name: str, run_script: Any, seen: str
) -> None:
    code = f"""
driver.delete_topic(sys.argv[2])
try:
    {seen}
except thalweg.exceptions.Error as error:
    print(type(error).__name__)
"""
    done = run_script(PRELUDE + code, shared_server.group_file, name)
    assert done.returncode == 0 and done.stdout and not done.stderr, done.stderr


def test_a_failure_that_nobody_saw_is_one_line(
    shared_server: Any, driver: thalweg.Driver, name: str, run_script: Any
) -> None:
    code = """
driver.delete_topic(sys.argv[2])
producer.push({})
"""
    done = run_script(PRELUDE + code, shared_server.group_file, name)
    assert done.returncode == 0
    assert done.stderr.startswith("thalweg: while the program ended: ")
    assert done.stderr.count("\n") == 1, done.stderr


def test_daemon_threads_that_pull_say_nothing(
    shared_server: Any, driver: thalweg.Driver, name: str, run_script: Any
) -> None:
    code = """
begun = threading.Barrier(3)
def pull(consumer):
    begun.wait()
    for event in consumer:
        pass
def wait(consumer):
    begun.wait()
    consumer.pull(1000)
readers = [topic.consumer("reader"), topic.queue("workers")]
for run, reader in zip((pull, wait), readers):
    threading.Thread(target=run, args=(reader,), daemon=True).start()
begun.wait()
"""
    done = run_script(PRELUDE + code, shared_server.group_file, name)
    assert done.returncode == 0 and not done.stderr, done.stderr
