"""`diaspora-producer-benchmark` and `diaspora-consumer-benchmark`."""

from __future__ import annotations

import argparse
import importlib
import json
import os
import random
import string
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from thalweg_mofka.consumer import ByteArrayAllocator
from thalweg_mofka.descriptor import DataDescriptor
from thalweg_mofka.driver import Driver
from thalweg_mofka.errors import ClientException

__all__ = ["consumer_main", "producer_main"]

#: Random data is made once and used again, from this many bytes on.
_RANDOM_BYTES_MAX = 64 << 20


class _Ranks:
    """The processes that measure together: those of mpiexec, if mpi4py is there."""

    def __init__(self) -> None:
        self.rank, self.count = 0, 1
        self._world: Any = None
        size = next((os.environ[name] for name in ("PMI_SIZE", "OMPI_COMM_WORLD_SIZE") if name in os.environ), "1")
        if size != "1":
            try:
                self._world = importlib.import_module("mpi4py.MPI").COMM_WORLD
            except ImportError:
                raise ClientException(f"{size} processes measure together by mpi4py, which is not installed") from None
            self.rank, self.count = self._world.rank, self._world.size

    def barrier(self) -> None:
        if self._world is not None:
            self._world.Barrier()

    def say(self, *lines: str) -> None:
        if self.rank == 0:
            print("\n".join(lines), flush=True)


def producer_main(arguments: Sequence[str] | None = None) -> int:
    """Measures how fast events are produced."""
    parser = _parser("diaspora-producer-benchmark", "Measures how fast events are produced.", "to produce to")
    parser.add_argument("-s", "--data-size", type=int, default=0, help="bytes of data of an event")
    parser.add_argument("-m", "--metadata-size", type=int, default=0, help="bytes of metadata of an event")
    parser.add_argument("-b", "--batch-size", type=int, default=1, help="events in a batch")
    parser.add_argument("-f", "--flush-interval", type=int, default=1000, help="events between flushes")
    return _run(parser.parse_args(arguments), _produce, {
        "Data size": "data_size", "Metadata size": "metadata_size", "Batch size": "batch_size",
        "Number of threads": "num_threads", "Flush interval": "flush_interval",
    })


def consumer_main(arguments: Sequence[str] | None = None) -> int:
    """Measures how fast events are consumed."""
    parser = _parser("diaspora-consumer-benchmark", "Measures how fast events are consumed.", "to consume from")
    for short, name, help in (("-s", "selectivity", "share of each event's data that is read"),
                              ("-i", "interest", "share of events whose data is read")):
        parser.add_argument(short, f"--data-{name}", type=_share, default=1.0, help=f"{help}, 0 to 1")
    return _run(parser.parse_args(arguments), _consume, {
        "Number of threads": "num_threads", "Data interest": "data_interest", "Data selectivity": "data_selectivity",
    })


def _parser(name: str, description: str, topic: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(name, description=description, allow_abbrev=False)
    parser.add_argument("-d", "--driver", required=True, help="mofka or thalweg")
    parser.add_argument("-c", "--driver-config", default="", metavar="FILE", help="a JSON file with the driver's options")
    parser.add_argument("-t", "--topic", required=True, help=f"the topic {topic}, which is there already")
    parser.add_argument("-n", "--num-events", type=int, default=1000, help="events of each process")
    parser.add_argument("-p", "--num-threads", type=int, default=1, help="threads of the pool that is handed over")
    return parser


def _share(text: str) -> float:
    share = float(text)
    if not 0 <= share <= 1:
        raise argparse.ArgumentTypeError(f"{text} is not between 0 and 1")
    return share


def _run(
    options: argparse.Namespace,
    measure: Callable[[argparse.Namespace, Driver, _Ranks], list[str]],
    shown: dict[str, str],
) -> int:
    try:
        ranks = _Ranks()
        ranks.say(
            "--- Benchmark Options ---",
            f"Driver: {options.driver}",
            f"Driver config file: {options.driver_config}",
            f"Topic: {options.topic}",
            f"Number of events: {options.num_events}",
            *(f"{label}: {getattr(options, name)}" for label, name in shown.items()),
        )
        given = json.loads(Path(options.driver_config).read_text()) if options.driver_config else {}
        with Driver(options.driver, given) as driver:
            results = measure(options, driver, ranks)
        ranks.say("", "--- Benchmark Results ---", *results)
        return 0
    except (ClientException, OSError, ValueError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 255


def _produce(options: argparse.Namespace, driver: Driver, ranks: _Ranks) -> list[str]:
    letters = random.choices(string.ascii_letters + string.digits, k=max(options.metadata_size - 2, 0) + options.num_events)
    text = "".join(letters)
    # Every event has other metadata: a text that begins at another place.
    metadata = [f'"{text[i : i + max(options.metadata_size - 2, 0)]}"' for i in range(options.num_events)]
    pool = os.urandom(min(options.data_size * options.num_events, max(_RANDOM_BYTES_MAX, options.data_size)))
    places = max(len(pool) // options.data_size, 1) if options.data_size else 1
    view = memoryview(pool)
    topic = driver.open_topic(options.topic)
    producer = topic.producer(
        "benchmark-producer", batch_size=options.batch_size, thread_pool=driver.make_thread_pool(options.num_threads)
    )
    ranks.barrier()
    begin = time.perf_counter()
    for i in range(options.num_events):
        at = (i % places) * options.data_size
        producer.push(metadata[i], view[at : at + options.data_size])
        if (i + 1) % options.flush_interval == 0:
            producer.flush().wait(-1)
    producer.flush().wait(-1)
    ranks.barrier()
    elapsed = time.perf_counter() - begin
    megabytes = (options.data_size + options.metadata_size) * options.num_events / (1 << 20)
    return [
        f"Total time: {elapsed:.6g} s",
        f"Total events: {options.num_events}",
        f"Throughput: {options.num_events / elapsed:.6g} events/s",
        f"Bandwidth: {megabytes / elapsed:.6g} MB/s",
    ]


def _consume(options: argparse.Namespace, driver: Driver, ranks: _Ranks) -> list[str]:
    topic = driver.open_topic(options.topic)
    count = len(topic.partitions)
    if ranks.rank == 0 and count % ranks.count:
        print("WARNING: the partitions can't be shared evenly among the processes", file=sys.stderr)

    def select(metadata: Any, descriptor: DataDescriptor) -> DataDescriptor | None:
        if random.random() >= options.data_interest:
            return None
        return descriptor.make_sub_view(0, int(descriptor.size * options.data_selectivity))

    # All of everything is what a consumer gets without being asked.
    is_all = options.data_interest == options.data_selectivity == 1
    ranks.barrier()
    consumer = topic.consumer(
        "benchmark-consumer",
        thread_pool=driver.make_thread_pool(options.num_threads),
        targets=list(range(ranks.rank, count, ranks.count)),
        data_selector=None if is_all else select,
        data_allocator=None if is_all else ByteArrayAllocator,
    )
    begin = time.perf_counter()
    received = 0
    while received < options.num_events:
        if consumer.pull().wait(5000) is not None:
            received += 1
    ranks.barrier()
    elapsed = time.perf_counter() - begin
    return [
        f"Total time: {elapsed:.6g} s",
        f"Total events: {options.num_events}",
        f"Throughput: {options.num_events / elapsed:.6g} events/s",
    ]
