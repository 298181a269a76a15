"""Whole programs in the manner of those in print: a topic, a producer, a consumer.

Methods are in camel case there, options by name, and selectors and allocators
are functions of the program. What such programs leave undefined (where the group
file is, how events are made, what is done with them) is filled in around them.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable

import pytest

TOPIC = """
from mochi.mofka.client import MofkaDriver, Validator, PartitionSelector, Serializer

driver = MofkaDriver({connect})
driver.createTopic(
    topic_name,
    validator=Validator.from_metadata(type="schema", schema=schema),
    partition_selector=PartitionSelector.from_metadata(type="default"),
    serializer=Serializer.from_metadata(type="default"))
driver.addMemoryPartition(topic_name, 0)
driver.addDefaultPartition(topic_name, 0)
"""

PRODUCER = """
from mochi.mofka.client import MofkaDriver, AdaptiveBatchSize, ThreadPool, Ordering

driver = MofkaDriver({connect})
topic = driver.openTopic(topic_name)
producer = topic.producer(
    name="my_producer",
    batch_size=AdaptiveBatchSize,
    thread_pool=ThreadPool(1),
    ordering=Ordering.Strict)
for metadata, data in events():
    future = producer.push(metadata=metadata, data=data)
producer.flush()
event_id = future.wait()
"""

CONSUMER = """
from mochi.mofka.client import MofkaDriver, AdaptiveBatchSize, ThreadPool

def data_selector(metadata, descriptor):
    if interesting(metadata):
        return descriptor.make_sub_view(0, 4)
    else:
        return None

def data_allocator(metadata, descriptor):
    return [bytearray(descriptor.size)]

driver = MofkaDriver({connect})
topic = driver.openTopic(topic_name)
consumer = topic.consumer(
    name="my_consumer",
    thread_pool=ThreadPool(1),
    batch_size=AdaptiveBatchSize,
    data_selector=data_selector,
    data_allocator=data_allocator)
for i in range(num_events):
    event = consumer.pull().wait()
    process(event)
    event.acknowledge()
"""

AROUND = """
import json, sys
group_file, topic_name = sys.argv[1:3]
schema = {"type": "object", "required": ["energy"]}
num_events = 10

def events():
    for i in range(num_events):
        yield {"energy": i}, b"data %d" % i

def interesting(metadata):
    return metadata["energy"] % 3 == 0

seen = []
def process(event):
    metadata = event.metadata if isinstance(event.metadata, dict) else json.loads(event.metadata)
    seen.append((metadata["energy"], [bytes(piece) for piece in event.data]))
"""


@pytest.mark.parametrize("connect", ["group_file", "group_file=group_file", "group_file, use_progress_thread=True"])
def test_a_topic_a_producer_and_a_consumer(
    shared_server, name: str, run_script: Callable[..., subprocess.CompletedProcess[str]], connect: str
) -> None:
    programs = [
        (TOPIC, "print(len(driver.openTopic(topic_name).partitions))", "2\n"),
        (PRODUCER, "print(event_id)", "4\n"),
        (CONSUMER, "print(sorted(seen)[:4], len(seen))",
         "[(0, [b'data']), (1, [b'']), (2, [b'']), (3, [b'data'])] 10\n"),
    ]
    for program, end, output in programs:
        done = run_script(AROUND + program.replace("{connect}", connect) + end, shared_server.group_file, f"{name}-{len(connect)}")
        assert (done.returncode, done.stdout) == (0, output), done.stderr
