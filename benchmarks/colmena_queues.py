"""What Colmena's queues cost: ours beside its RedisQueues, in turn.

    colmena_queues.py --thalweg PROGRAM [--rounds N] [--tasks N] [--outstanding N] [--storage memory|disk]

A thinker with one thread for each of seven types of tasks, and a task server
(Colmena's own, LocalTaskServer) with forked workers. What is measured are
Colmena's own time stamps, of each task:

    task_launch   from when the task was made until the task server had it
    result_comm   from when the task server sent the result until the thinker had it,
                  as what it is

Everything is on loopback; servers are started here and ended. Prints tables in
Markdown.
"""

import argparse
import os
import random
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import defaultdict
from contextlib import ExitStack
from pathlib import Path

import redis
from colmena.queue.redis import RedisQueues
from colmena.task_server.local import LocalTaskServer

from thalweg.integrations.colmena import ThalwegQueues

KB, MB = 1000, 1_000_000

# What goes in and comes out, in bytes: a campaign of molecules, generated and
# assembled, screened by ever dearer simulations, with a model that is trained again.
TYPES = {
    "generate": ((50 * KB, 50 * KB), (300 * KB, 300 * KB)),
    "process": ((600 * KB, 600 * KB), (100 * KB, 100 * KB)),
    "assemble": ((300 * KB, 300 * KB), (300 * KB, 300 * KB)),
    "validate": ((200 * KB, 200 * KB), (400 * KB, 400 * KB)),
    "optimize": ((900 * KB, 900 * KB), (600 * KB, 600 * KB)),
    "estimate": ((100 * KB, 100 * KB), (10 * KB, 10 * KB)),
    "train": ((10 * MB, 40 * MB), (1 * MB, 2 * MB)),
}
LARGE = "train"
MEASURES = ("task_launch", "result_comm")


def work(content, result_bytes):
    """A task: what it computes is none of the queues' business."""
    return content[:1] * result_bytes


def method(name):
    def run(content, result_bytes):
        return work(content, result_bytes)

    run.__name__ = run.__qualname__ = name
    globals()[name] = run
    return run


METHODS = [method(name) for name in TYPES]


def spans(result):
    stamp = result.timestamp
    return {
        "task_launch": stamp.input_received - stamp.created,
        "result_comm": stamp.result_received - stamp.result_sent,
        "whole": stamp.result_received - stamp.created,
    }


def run(queues, options, seed):
    """One round: {(type, measure): [seconds]}."""
    server = LocalTaskServer(queues, METHODS, threads=False, num_workers=options.workers)
    server.start()
    measured = defaultdict(list)
    turn = threading.Semaphore(options.outstanding)

    def think(name, count):
        chance = random.Random(f"{seed} {name}")
        sizes_in, sizes_out = TYPES[name]
        for index in range(-2, count):
            content = chance.randbytes(chance.randint(*sizes_in))
            with turn:
                queues.send_inputs(
                    content, chance.randint(*sizes_out), method=name, topic=name, keep_inputs=False
                )
                result = queues.get_result(name)
            assert result.success, result.failure_info
            if index >= 0:
                for measure, seconds in spans(result).items():
                    measured[name, measure].append(seconds)
            time.sleep(chance.uniform(0, options.pause))

    threads = [threading.Thread(target=think, args=(name, options.tasks)) for name in TYPES]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    queues.send_kill_signal()
    server.join()
    return measured


def start_redis(stack, directory):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = ["redis-server", "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--dir", directory]
    stack.enter_context(ended(subprocess.Popen(command, stdout=subprocess.DEVNULL)))
    client = redis.Redis(port=port)
    while True:
        try:
            client.ping()
            return port
        except redis.exceptions.ConnectionError:
            time.sleep(0.05)


def start_thalweg(stack, directory, program):
    group_file = Path(directory) / "thalweg.json"
    command = [program, "serve", "--directory", f"{directory}/data", "--group-file", str(group_file)]
    stack.enter_context(ended(subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)))
    while not group_file.exists():
        time.sleep(0.05)
    return group_file


class PatientRedisQueues(RedisQueues):
    """Its client, from version 8 on, gives up what takes longer than 5 s, whatever Colmena asked for."""

    def connect(self):
        super().connect()
        self.redis_client.connection_pool.connection_kwargs["socket_timeout"] = None
        self.redis_client.connection_pool.disconnect()


class ended:
    def __init__(self, process):
        self.process = process

    def __enter__(self):
        return self.process

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait()


def percentile(values, of_hundred):
    values = sorted(values)
    return values[min(len(values) - 1, round(of_hundred / 100 * (len(values) - 1)))]


def report(measured):
    print("\n| tasks | measure | Redis p50, ms | ours | ratio | Redis p99, ms | ours | ratio |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- |")
    classes = {"below 1 MB": [name for name in TYPES if name != LARGE], "10 to 40 MB in, 1 to 2 MB out": [LARGE]}
    for title, names in classes.items():
        for measure in (*MEASURES, "whole"):
            row = [title, measure]
            for of_hundred in (50, 99):
                theirs, ours = (
                    percentile([s for name in names for s in measured[backend][name, measure]], of_hundred) * 1e3
                    for backend in ("redis", "thalweg")
                )
                row += [f"{theirs:.2f}", f"{ours:.2f}", f"{ours / theirs:.2f}"]
            print("| " + " | ".join(row) + " |")
    print("\n| type | Redis launch p50, ms | ours | Redis comm p50, ms | ours |")
    print("| --- | --- | --- | --- | --- |")
    for name in TYPES:
        row = [name]
        for measure in MEASURES:
            for backend in ("redis", "thalweg"):
                row.append(f"{statistics.median(measured[backend][name, measure]) * 1e3:.2f}")
        print("| " + " | ".join(row) + " |")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--thalweg", required=True)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--tasks", type=int, default=30, help="of each type and round")
    parser.add_argument("--outstanding", type=int, default=2)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--pause", type=float, default=0.02, help="seconds that a thread thinks at most")
    parser.add_argument("--storage", default="memory")
    options = parser.parse_args()
    measured = {backend: defaultdict(list) for backend in ("redis", "thalweg")}
    before = os.getloadavg()[0]
    with ExitStack() as stack:
        directory = stack.enter_context(tempfile.TemporaryDirectory())
        port = start_redis(stack, directory)
        group_file = start_thalweg(stack, directory, options.thalweg)
        for index in range(options.rounds):
            # Each goes first in turn.
            for backend in ("redis", "thalweg") if index % 2 else ("thalweg", "redis"):
                if backend == "redis":
                    queues = PatientRedisQueues(TYPES, port=port, prefix=f"round-{index}")
                else:
                    queues = ThalwegQueues(TYPES, group_file, storage=options.storage)
                for key, seconds in run(queues, options, index).items():
                    measured[backend][key] += seconds
                if backend == "thalweg":
                    queues.delete_topics()
                print(f"round {index + 1}: {backend}", file=sys.stderr)
    count = options.rounds * options.tasks
    print(
        f"{count} tasks of each of {len(TYPES)} types, {options.outstanding} under way; {os.cpu_count()} processors,"
        f" load {before:.1f} before"
    )
    report(measured)


if __name__ == "__main__":
    main()
