"""Colmena as it is released, on Thalweg's queues."""

from __future__ import annotations

import collections
import json
import multiprocessing
import os
import pickle
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from colmena.exceptions import TimeoutException
from colmena.queue.python import PipeQueues
from colmena_servers import serve, take_and_wait

import thalweg
from thalweg.integrations.colmena import ThalwegQueues

TOPICS = ["simulate", "train"]
LARGE = bytes(range(256)) * 4096


@pytest.fixture
def queues(shared_server: Any) -> Iterator[ThalwegQueues]:
    queues = ThalwegQueues(TOPICS, shared_server.group_file)
    yield queues
    queues.delete_topics()


def apart(queues: ThalwegQueues, server: Any) -> ThalwegQueues:
    """The same queues, with a connection of their own."""
    return ThalwegQueues(TOPICS, server.group_file, prefix=queues.prefix)


@pytest.fixture
def start() -> Iterator[Any]:
    processes = []

    def start(how: str, target: Any, *arguments: Any) -> Any:
        process = multiprocessing.get_context(how).Process(target=target, args=arguments)  # type: ignore[attr-defined]
        process.start()
        processes.append(process)
        return process

    yield start
    for process in processes:
        # Shown if the test has failed.
        print(f"{process.name}, {process.pid}, is {'there' if process.is_alive() else process.exitcode}")
        process.kill()
        process.join()


def test_an_application_comes_to_the_same_as_with_redis(
    shared_server: Any, redis_port: int, tmp_path: Path
) -> None:
    script = Path(__file__).with_name("colmena_application.py")
    outcomes = {}
    for backend, place in (("redis", redis_port), ("thalweg", shared_server.group_file)):
        command = [sys.executable, str(script), backend, str(place)]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=100)
        assert done.returncode == 0, done.stderr
        outcomes[backend] = json.loads(done.stdout.splitlines()[-1])
    assert outcomes["thalweg"] == outcomes["redis"]
    counts = collections.Counter(noted[0] for noted in outcomes["thalweg"])
    assert counts == {"simulate": 12, "grow": 4, "stream": 6, "fail": 2}


@pytest.mark.parametrize("how", ["fork", "spawn"])
def test_a_task_server_in_another_process(queues: ThalwegQueues, start: Any, how: str) -> None:
    # What the parent did before is no burden to the child.
    with pytest.raises(TimeoutException):
        queues.get_result("train", timeout=0.1)
    server = start(how, serve, queues)
    for topic in TOPICS:
        for value in (1, "text", LARGE):
            queues.send_inputs(value, method="f", topic=topic)
            result = queues.get_result(topic, timeout=100)
            assert result.value == (server.pid, value) and result.args == (value,)
    queues.send_kill_signal()
    server.join(100)
    assert server.exitcode == 0


def test_a_copy_by_pickle_is_the_same_queues(queues: ThalwegQueues) -> None:
    copy = pickle.loads(pickle.dumps(queues))
    assert copy.prefix == queues.prefix and copy.topics == queues.topics
    queues.send_inputs(1, method="f")
    topic, task = pickle.loads(pickle.dumps(queues)).get_task(timeout=100)
    # Whoever takes a task, and whoever sends its result, are different copies.
    assert topic == "default" and task.method == "f" and task.deserialize() >= 0
    task.set_result("done")
    task.serialize()
    copy.send_result(task)
    assert queues.get_result(timeout=100).value == "done"
    assert queues.wait_until_done(timeout=100)
    copy.disconnect()
    assert not queues.is_connected
    with pytest.raises(TimeoutException):
        queues.get_task(timeout=0.1)
    assert queues.is_connected


def test_each_task_reaches_one_of_two_task_servers(queues: ThalwegQueues, start: Any) -> None:
    servers = [start("fork", serve, queues) for _ in range(2)]
    for index in range(200):
        queues.send_inputs(index, method="f", topic="simulate")
    values = [queues.get_result("simulate", timeout=100).value for _ in range(200)]
    assert sorted(index for _, index in values) == list(range(200))
    assert {pid for pid, _ in values} <= {server.pid for server in servers}
    with pytest.raises(TimeoutException):
        queues.get_result("simulate", timeout=0.1)
    for _ in servers:
        queues.send_kill_signal()
    for server in servers:
        server.join(100)
        assert server.exitcode == 0


def test_tasks_of_a_killed_task_server_go_to_another(shared_server: Any, start: Any) -> None:
    queues = ThalwegQueues(TOPICS, shared_server.group_file, session_timeout=1.0)
    taken = multiprocessing.get_context("fork").Semaphore(0)
    victim = start("fork", take_and_wait, queues, taken)
    sent = {queues.send_inputs(LARGE, index, method="f", topic="simulate") for index in range(3)}
    for _ in sent:
        assert taken.acquire(timeout=100)
    os.kill(victim.pid, signal.SIGKILL)
    again = {queues.get_task(timeout=100)[1].task_id for _ in sent}
    assert again == sent
    queues.delete_topics()


def test_a_task_is_finished_when_its_result_is_sent(queues: ThalwegQueues, shared_server: Any) -> None:
    first, second = apart(queues, shared_server), apart(queues, shared_server)
    for index in range(3):
        queues.send_inputs(index, method="f", topic="train")
    tasks = [first.get_task(timeout=100)[1] for _ in range(3)]
    for task, complete in zip(tasks, (True, False, None), strict=True):
        task.set_result(LARGE, intermediate=not complete)
        task.complete = complete
        task.serialize()
        first.send_result(task)
    # What it has not finished goes to others when it ends.
    first.disconnect()
    _, task = second.get_task(timeout=100)
    assert task.task_id == tasks[1].task_id
    with pytest.raises(TimeoutException):
        second.get_task(timeout=0.1)
    second.disconnect()


def test_who_asks_no_more_keeps_nothing_from_others(queues: ThalwegQueues, shared_server: Any) -> None:
    idle = apart(queues, shared_server)
    with pytest.raises(TimeoutException):
        idle.get_task(timeout=0)
    for index in range(20):
        queues.send_inputs(index, method="f")
    tasks = [queues.get_task(timeout=100)[1] for _ in range(20)]
    for task in tasks:
        task.deserialize()
    assert sorted(task.args[0] for task in tasks) == list(range(20))
    idle.disconnect()


def test_threads_wait_on_several_topics(queues: ThalwegQueues, start: Any) -> None:
    start("fork", serve, queues)
    got = collections.defaultdict(list)

    def gather(topic: str) -> None:
        for _ in range(20):
            got[topic].append(queues.get_result(topic, timeout=100).value[1])

    threads = [threading.Thread(target=gather, args=(topic,)) for topic in TOPICS]
    for thread in threads:
        thread.start()
    for index in range(20):
        for topic in TOPICS:
            queues.send_inputs((topic, index), method="f", topic=topic)
    for thread in threads:
        thread.join(100)
    assert got == {topic: [(topic, index) for index in range(20)] for topic in TOPICS}
    queues.send_kill_signal()


@pytest.mark.parametrize("timeout", [0, 0.1])
def test_timeouts(queues: ThalwegQueues, timeout: float) -> None:
    with pytest.raises(TimeoutException):
        queues.get_task(timeout=timeout)
    with pytest.raises(TimeoutException):
        queues.get_result("train", timeout=timeout)


def refuse(*_: Any) -> None:
    raise ArithmeticError


class Stubborn:
    """Can be pickled, but not be loaded."""

    def __init__(self, size: int) -> None:
        self.size = size

    def __reduce__(self) -> tuple[Any, ...]:
        return refuse, (bytes(self.size),)


@pytest.mark.parametrize("size", [1, 1_000_000])
def test_a_result_that_cannot_be_loaded_does_not_come_again(queues: ThalwegQueues, size: int) -> None:
    queues.send_inputs(1, method="f", topic="train")
    _, task = queues.get_task(timeout=100)
    task.set_result(Stubborn(size))
    task.serialize()
    queues.send_result(task)
    with pytest.raises(ArithmeticError):
        queues.get_result("train", timeout=100)
    # What this process has and is not settled goes to others then.
    queues.disconnect()
    with pytest.raises(TimeoutException):
        queues.get_result("train", timeout=0.2)


def test_a_flush_discards_what_waits(queues: ThalwegQueues) -> None:
    for index in range(300):
        queues._send_request(f'{{"n": {index}}}', "train")
        queues._send_result(f'{{"n": {index}}}', "train")
    queues.flush()
    with pytest.raises(TimeoutException):
        queues.get_task(timeout=0.1)
    with pytest.raises(TimeoutException):
        queues.get_result("train", timeout=0.1)
    queues.send_inputs(1, method="f")
    assert queues.get_task(timeout=100)[1].method == "f"


@pytest.mark.parametrize("text", ["", "text", '{"task_id": "a"}', "\N{GREEK SMALL LETTER OMEGA}" * 100_000])
def test_any_string_passes(queues: ThalwegQueues, text: str) -> None:
    queues._send_request(text, "train")
    assert queues._get_request(timeout=100) == ("train", text)
    queues._send_result(text, "train")
    assert queues._get_result("train", timeout=100) == text


@pytest.mark.parametrize("method", ["json", "pickle"])
@pytest.mark.parametrize("value", ["", "text", [1, 2], {"a": None}, "x" * 1_000_000])
@pytest.mark.parametrize("keep_inputs", [False, True])
def test_tasks_and_results_are_those_of_colmena(
    shared_server: Any, method: str, value: Any, keep_inputs: bool
) -> None:
    ours = ThalwegQueues(
        (), shared_server.group_file, serialization_method=method, keep_inputs=keep_inputs
    )
    theirs = PipeQueues((), serialization_method=method, keep_inputs=keep_inputs)
    described = []
    for queues in (ours, theirs):
        # Theirs can't be sent from the thread that is to read it, if it is large.
        client = threading.Thread(
            target=queues.send_inputs,
            args=(value, 1),
            kwargs={"input_kwargs": {"also": value}, "method": "f", "task_info": {"n": 1}},
        )
        client.start()
        topic, task = queues.get_task(timeout=100)
        client.join()
        serialized = task.inputs
        task.deserialize()
        inputs = task.inputs
        task.set_result([value])
        task.serialize()
        server = threading.Thread(target=queues.send_result, args=(task,))
        server.start()
        result = queues.get_result(timeout=100)
        server.join()
        constant = result.model_dump(exclude={"task_id", "timestamp", "time"})
        described.append((topic, serialized, inputs, constant))
    assert described[0] == described[1]
    ours.delete_topics()


def test_tasks_on_disk_survive_the_server(server: Any) -> None:
    with server.connect():
        queues = ThalwegQueues(TOPICS, server.group_file, storage="disk")
    for index in range(3):
        queues.send_inputs(index, LARGE, method="f")
    _, task = queues.get_task(timeout=100)
    server.kill()
    server.start()
    task.set_result(0)
    task.serialize()
    queues.send_result(task)
    left = [queues.get_task(timeout=100)[1] for _ in range(2)]
    for each in left:
        each.deserialize()
    assert [each.args for each in left] == [(1, LARGE), (2, LARGE)]
    assert queues.get_result(timeout=100).value == 0
    queues.disconnect()


def test_without_a_server(tmp_path: Path) -> None:
    with pytest.raises(thalweg.Unreachable):
        ThalwegQueues(TOPICS, tmp_path / "none.json", connection={"connect_timeout": 0.1})
