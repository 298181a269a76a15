"""Processes that replay profiling units by Flowcept, as it is published: one of its message queues.

    flowcept_replay.py KIND BATCH UNITS PROCESSES      replays, and prints what it cost
    flowcept_replay.py read SECONDS                    counts what a consumer gets that starts now

Which message queue, and where, is in Flowcept's settings, `FLOWCEPT_SETTINGS_PATH`, which have to
switch its own timing of flushes on. Prints one line of JSON.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import statistics
import sys
import threading
import time
from typing import Any

KINDS = {"light": 6_000, "heavy": 169_000}
"""Bytes of a unit, as JSON."""


def unit_of(size: int) -> dict[str, Any]:
    """A task as Flowcept captures it, with as many processors in its telemetry as make its size."""

    def telemetry(processors: int) -> dict[str, Any]:
        times = {"user": 81532.47, "nice": 0.0, "system": 20311.32, "idle": 912344.08, "iowait": 451.71}
        return {
            "cpu": {
                "times_avg": times, "percent_all": 61.4,
                "times_per_cpu": [dict(times, number=index) for index in range(processors)],
                "percent_per_cpu": [round(index * 0.37 % 100, 2) for index in range(processors)],
            },
            "memory": {"virtual": {"total": 540_000_000_000, "available": 311_000_000_000, "percent": 42.4}},
            "process": {"pid": 4711, "cpu_number": 3, "memory": {"rss": 1_204_000_000, "vms": 9_100_000_000}},
            "network": {"netio": {"bytes_sent": 83_112_094, "bytes_recv": 93_002_118, "packets_sent": 81_934}},
            "disk": {"io": {"read_count": 81_114, "write_count": 31_822, "read_bytes": 5_123_992_112}},
        }

    def unit(processors: int) -> dict[str, Any]:
        return {
            "type": "task", "task_id": "1763800000.123456_0_4711", "workflow_id": "9b2f7a9e-54c7-4d0f-8c06-4b0d51e6",
            "campaign_id": "replay", "activity_id": "train_epoch", "status": "FINISHED", "hostname": "node0421",
            "used": {"epoch": 3, "learning_rate": 0.0015, "batch_size": 64, "layers": [784, 512, 256, 10]},
            "generated": {"loss": 0.1327, "accuracy": 0.9652, "responsible": "worker"},
            "started_at": 1763800000.1, "ended_at": 1763800001.9, "registered_at": 1763800002.0,
            "telemetry_at_start": telemetry(processors), "telemetry_at_end": telemetry(processors),
        }

    processors = 1
    step = len(json.dumps(unit(2))) - len(json.dumps(unit(1)))
    processors += max(0, round((size - len(json.dumps(unit(1)))) / step))
    while len(json.dumps(unit(processors))) < size:
        processors += 1
    return unit(processors)


def process(number: int, kind: str, batch: int, units: int, barrier: Any, told: Any) -> None:
    """One process: what it published, and what that took, in seconds."""
    from flowcept.commons.daos.mq_dao.mq_dao_base import MQDao

    standard_output = os.dup(1)
    os.dup2(2, 1)  # Some of Flowcept prints.
    queue = MQDao.build()
    unit = unit_of(KINDS[kind])
    barrier.wait()
    begun, cpu = time.perf_counter(), time.process_time()
    publishing = 0.0
    for first in range(0, units, batch):
        made = [{**unit, "task_id": f"{number}_{index}"} for index in range(first, min(first + batch, units))]
        before = time.perf_counter()
        queue.bulk_publish(made)
        publishing += time.perf_counter() - before
    # Flowcept does not wait for a flush of Mofka's, the program's end does: so it counts.
    before = time.perf_counter()
    if hasattr(queue, "producer"):
        queue.producer.close()
    final = time.perf_counter() - before
    flushes = [event[3] for event in queue._flush_events]
    told.send({
        "run_s": time.perf_counter() - begun, "cpu_s": time.process_time() - cpu, "publish_s": publishing + final,
        "final_s": final, "flush_s": sum(flushes), "flush_max_s": max(flushes), "flushes": len(flushes),
        "flush_median_s": statistics.median(flushes), "flush_max_index": flushes.index(max(flushes)),
    })
    told.close()
    os.dup2(standard_output, 1)


def replay(kind: str, batch: int, units: int, processes: int) -> list[dict[str, float]]:
    import flowcept.configs  # noqa: F401  Once, and not in each process.
    from flowcept.commons.daos.mq_dao import mq_dao_base  # noqa: F401

    context = multiprocessing.get_context("fork")
    barrier = context.Barrier(processes)
    children, ends = [], []
    for number in range(processes):
        end, told = context.Pipe(False)
        children.append(context.Process(target=process, args=(number, kind, batch, units, barrier, told)))
        ends.append(end)
    for child in children:
        child.start()
    found = [end.recv() for end in ends]
    for child in children:
        child.join()
    assert not any(child.exitcode for child in children), [child.exitcode for child in children]
    return found


def read(seconds: float) -> dict[str, float]:
    """What Flowcept's own consumer gets, until nothing comes for so long."""
    from flowcept.commons.daos.mq_dao.mq_dao_base import MQDao

    standard_output = os.dup(1)
    os.dup2(2, 1)
    queue = MQDao.build()
    tasks: set[str] = set()
    last = [time.monotonic()]

    def handler(message: dict[str, Any]) -> bool:
        last[0] = time.monotonic()
        if message.get("type") == "task":
            tasks.add(message["task_id"])
        return True

    queue.subscribe()
    threading.Thread(target=queue.message_listener, args=(handler,), daemon=True).start()
    while time.monotonic() - last[0] < seconds:
        time.sleep(0.1)
    os.dup2(standard_output, 1)
    return {"tasks": len(tasks)}


def main() -> None:
    command, *arguments = sys.argv[1:]
    if command == "read":
        found: Any = read(float(arguments[0]))
    else:
        found = replay(command, *map(int, arguments))
    print(json.dumps(found), flush=True)
    # Threads of Flowcept's would keep this from ending.
    os._exit(0)


if __name__ == "__main__":
    main()
