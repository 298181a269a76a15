"""Producers and consumers captured in tasks, of Parsl and Dask as they are released."""

from __future__ import annotations

import concurrent.futures
import multiprocessing
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import dask.distributed
import parsl
import pytest
from parsl.config import Config
from parsl.executors import HighThroughputExecutor, ThreadPoolExecutor
from parsl.providers import LocalProvider
from pickled_tasks import push_some, read_all, work_off

import thalweg

TASKS = 6
EVENTS = 10

Submit = Callable[..., Any]


def submit_to_parsl(executor: Any, directory: Path) -> Iterator[Submit]:
    with parsl.load(Config(executors=[executor], run_dir=str(directory))):
        yield lambda function, *arguments: parsl.python_app(function)(*arguments)
    parsl.clear()


def parsl_processes(directory: Path) -> Iterator[Submit]:
    workers = HighThroughputExecutor(
        label="workers",
        address="127.0.0.1",
        max_workers_per_node=2,
        cpu_affinity="none",
        provider=LocalProvider(init_blocks=1, max_blocks=1),
    )
    yield from submit_to_parsl(workers, directory)


def parsl_threads(directory: Path) -> Iterator[Submit]:
    yield from submit_to_parsl(ThreadPoolExecutor(label="threads", max_threads=2), directory)


def dask_processes(directory: Path) -> Iterator[Submit]:
    with (
        dask.distributed.LocalCluster(
            n_workers=2,
            threads_per_worker=1,
            processes=True,
            host="127.0.0.1",
            dashboard_address=None,
            local_directory=str(directory),
        ) as cluster,
        dask.distributed.Client(cluster) as client,
    ):
        yield lambda function, *arguments: client.submit(function, *arguments, pure=False)


def pool(how: str) -> Iterator[Submit]:
    context = multiprocessing.get_context(how)
    with concurrent.futures.ProcessPoolExecutor(2, mp_context=context) as executor:
        yield executor.submit


@pytest.fixture(params=["parsl processes", "parsl threads", "dask", "fork", "spawn"])
def submit(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: Any) -> Iterator[Submit]:
    # Workers import the tasks from there.
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent), prepend=":")
    how = {
        "parsl processes": lambda: parsl_processes(tmp_path),
        "parsl threads": lambda: parsl_threads(tmp_path),
        "dask": lambda: dask_processes(tmp_path),
        "fork": lambda: pool("fork"),
        "spawn": lambda: pool("spawn"),
    }
    yield from how[request.param]()


def test_a_producer_in_tasks(topic: thalweg.Topic, submit: Submit) -> None:
    with topic.producer() as producer:
        futures = [submit(push_some, producer, task, EVENTS) for task in range(TASKS)]
        workers = [future.result(100) for future in futures]
        # One process has one producer, however many tasks it runs.
        assert len({pid for pid, _ in workers}) == len(set(workers))
        producer.push({"task": -1, "i": 0})
    with topic.consumer("reader") as consumer:
        events = [consumer.pull(timeout=60) for _ in range(TASKS * EVENTS + 1)]
        assert consumer.pull(timeout=0) is None
    for task in range(TASKS):
        of_task = [event for event in events if event and event.metadata["task"] == task]
        assert [event.metadata["i"] for event in of_task] == list(range(EVENTS))


def test_a_task_farm_in_tasks(driver: thalweg.Driver, name: str, submit: Submit) -> None:
    tasks = driver.create_topic(name, storage="memory")
    results = driver.create_topic(f"{name}-results", storage="memory")
    with tasks.producer() as producer:
        producer.push_many([{"i": i} for i in range(20)])
    with tasks.queue("farm", prefetch=1) as queue, results.producer() as producer:
        counts = [submit(work_off, queue, producer) for _ in range(2)]
        # This process has a part in it, too.
        assert work_off(queue, producer) + sum(count.result(100) for count in counts) == 20
    with results.consumer("reader") as consumer:
        assert sorted(read_all(consumer, 20)) == list(range(20))


def test_a_consumer_goes_on_where_it_was_acknowledged(topic: thalweg.Topic, submit: Submit) -> None:
    with topic.producer() as producer:
        producer.push_many([{"i": i} for i in range(20)])
    with topic.consumer("viewer") as consumer:
        assert read_all(consumer, 5) == list(range(5))
        assert submit(read_all, consumer, 5).result(100) == list(range(5, 10))
