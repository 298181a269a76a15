"""The stubs say what users' programs rely on."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

GOOD = """
import asyncio
import numpy as np
import thalweg
from thalweg import steps

def select(metadata: dict[str, int], data: thalweg.DataView) -> thalweg.DataView | None:
    return data.rows((4, 5), np.float32, slice(0, 2))

with thalweg.Driver("thalweg.json") as driver:
    topic = driver.create_topic("frames", partitions=2, storage=["disk", ("memory", {})])
    with topic.producer(batch=10) as producer:
        future = producer.push({"angle": 0.5}, np.zeros((4, 5)), key="k", headers={"a": b"b"})
        offset: int = future.result(timeout=1).offset
        producer.push_many([{"a": 1}], data=np.zeros((1, 2)))
        producer.push("[]", [b"a", bytearray(3)])
    with topic.consumer("viewer", start="latest", data=select) as consumer:
        for event in consumer:
            size: int = event.data.nbytes
            array = event.numpy(np.float32, (2, 5))
            event.acknowledge()
        pulled: thalweg.Event | None = consumer.pull(timeout=0)
    with topic.queue("farm", lease=60, prefetch=4, start="latest") as worker:
        for task in worker:
            with task:
                deliveries: int = task.deliveries
            base: thalweg.Event = task
            task.return_to_queue(delay=1.5, reason="busy").result(timeout=1)
            replied: thalweg.Future = task.reply({"done": True}, np.zeros(3))
            extended: thalweg.Future[None] = task.extend()
        for drained in worker.drain(idle=0.5):
            drained.acknowledge()
    with topic.read(start=3, end={0: 5}, partitions=[0]) as reader:
        sizes: list[int] = [read.data_size for read in reader]
    with steps.Writer(driver, "fields", rank=0, ranks=2, queue=3) as writer:
        with writer.step(attrs={"time": 0.1}, wait="committed") as step:
            step.put("E", np.zeros((2, 3)), shape=(4, 3), start=(2, 0))
            step.span("B", (2, 3), "f4", join=0)[...] = 1
        ended: int = step.ended.number
        writer.attrs["unit"] = "V/m"
    with steps.Reader(driver, "fields", start=("run", 2)) as of_steps:
        for seen in of_steps:
            shape: tuple[int, ...] = seen["E"].shape
            got = seen.get_many({"E": np.s_[0:2, ..., 1], "B": ...}, out={"B": np.zeros((2, 3))})
            print(got["E"], seen["E"][0], seen.attrs["time"])
    with topic.requester(data=False) as requester:
        asked: thalweg.Future[thalweg.Event] = requester.request({"x": 1}, key="k", timeout=3)
        size = asked.result().data_size
        everybody = requester.broadcast(at_least=2).result()
        missing: tuple[str, ...] = everybody.missing
        first: dict[str, thalweg.Event] = everybody.replies

async def main() -> None:
    id: thalweg.EventId = await producer.push({})
    async for event in consumer:
        print(event.id, id)
    async for task in worker:
        await task.acknowledge()
    async for task in worker.drain():
        await task.acknowledge()
    async for event in topic.read():
        print(event.id)
    reply = await requester.request({})
    print(reply.metadata, (await requester.broadcast({})).missing)
"""

BAD = """
import thalweg

driver = thalweg.Driver("thalweg.json", adress="x")
topic = driver.create_topic("frames", durability="eternal")
producer = topic.producer(at_budget="panic")
producer.push({}).result().ofset
producer.push({}, data="text")
topic.consumer("viewer", start=1.5)
topic.consumer("viewer").pull().metadata
topic.queue("farm", start="yesterday")
topic.queue("farm").pull(1).reject()
topic.requester().request({}).result().offset
topic.requester().broadcast({}).result().replies[0]
"""


def mypy(path: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "mypy", "--strict", "--cache-dir", str(path.parent), str(path)]
    return subprocess.run(command, capture_output=True, text=True, cwd=path.parent)


def test_good_programs_pass_and_bad_lines_do_not(tmp_path: Path) -> None:
    good, bad = tmp_path / "good.py", tmp_path / "bad.py"
    good.write_text(GOOD)
    bad.write_text(BAD)
    assert mypy(good).returncode == 0, mypy(good).stdout
    complaints = mypy(bad).stdout
    wrong_lines = [number for number, line in enumerate(BAD.splitlines(), 1) if line][1:]
    assert len(wrong_lines) == 11
    for number in wrong_lines:
        assert f"bad.py:{number}: error" in complaints, complaints
