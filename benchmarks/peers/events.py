"""Pushes documents from Python, to the last acknowledgement.

    events.py thalweg               GROUP_FILE TOPIC EVENTS BYTES
    events.py kafka-json|kafka-orjson BROKER   TOPIC EVENTS BYTES [key=value ...]

An event is a dict, of which one member differs from event to event and whose
compact JSON text has BYTES; a Kafka client is given the text that json.dumps
or orjson.dumps make of it, as its programs do. Nobody is told of single
events. Prints one line of JSON, as the other load programs do.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any


def document(size: int) -> dict[str, Any]:
    """What an instrument tells of an exposure: numbers, short texts, a list."""
    made: dict[str, Any] = {"index": 100_000, "angle": 0.5, "ok": True}
    names = (f"motor_{number}" for number in range(1000))
    while True:
        more = {next(names): len(made) * 1234.5625, next(names): [len(made), 17, 0.25]}
        if len(compact({**made, **more, "note": ""})) > size:
            break
        made.update(more)
    made["note"] = ""
    made["note"] = "x" * (size - len(compact(made)))
    assert len(compact(made)) == size, "a document has some bytes at least"
    return made


def compact(made: dict[str, Any]) -> bytes:
    return json.dumps(made, separators=(",", ":")).encode()


def pushed_by_thalweg(group_file: str, name: str, events: int, event: dict[str, Any]) -> float:
    import thalweg

    with thalweg.Driver(group_file, connect_timeout=60) as driver:
        topic = driver.create_topic(name, durability="written")
        with topic.producer() as producer:
            push = producer.push
            push(event)
            producer.flush()
            began = time.perf_counter()
            for index in range(100_000, 100_000 + events):
                event["index"] = index
                push(event)
            producer.flush()
            return time.perf_counter() - began


def pushed_by_kafka(
    dumps: Any, broker: str, name: str, events: int, event: dict[str, Any], settings: list[str]
) -> float:
    from confluent_kafka import Producer

    given = dict(setting.split("=", 1) for setting in settings)
    producer = Producer({"bootstrap.servers": broker, **given})
    producer.produce(name, dumps(event))
    producer.flush()
    produce = producer.produce
    began = time.perf_counter()
    for index in range(100_000, 100_000 + events):
        event["index"] = index
        while True:
            try:
                produce(name, dumps(event))
                break
            except BufferError:
                producer.poll(0.01)
        if index % 1024 == 0:
            producer.poll(0)
    left = producer.flush(120)
    elapsed = time.perf_counter() - began
    if left:
        raise RuntimeError(f"{left} events were not delivered")
    return elapsed


def main() -> None:
    work, endpoint, name = sys.argv[1:4]
    events, size = int(sys.argv[4]), int(sys.argv[5])
    event = document(size)
    if work == "thalweg":
        seconds = pushed_by_thalweg(endpoint, name, events, event)
    else:
        dumps = json.dumps
        if work == "kafka-orjson":
            import orjson

            dumps = orjson.dumps
        seconds = pushed_by_kafka(dumps, endpoint, name, events, event, sys.argv[6:])
    line = {"events": events, "bytes_each": size, "seconds": seconds}
    print(json.dumps({**line, "events_per_s": events / seconds}))


if __name__ == "__main__":
    main()
