"""A driver with several connections to its server."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import thalweg
from conftest import Server


def connect(server: Server, scheme: str, stripes: int) -> thalweg.Driver:
    """By the address alone: the group file leads to a socket of this host."""
    with server.connect():
        group = json.loads(server.group_file.read_text())
    endpoint = next(one for one in group["endpoints"] if one.startswith(scheme))
    address = f"{scheme}://127.0.0.1:{endpoint.rpartition(':')[2]}"
    if scheme == "tls":
        address += f"?sha256={group['certificates'][0]}"
    return thalweg.Driver(address=address, token=bytes.fromhex(group["token"]), stripes=stripes)


@pytest.mark.parametrize("scheme", ["tcp", "tls"])
def test_events_come_once_and_in_order(tmp_path: Path, scheme: str) -> None:
    server = Server(tmp_path, f"{scheme}://127.0.0.1:0")
    server.start()
    try:
        with connect(server, scheme, 4) as driver:
            topic = driver.create_topic("t", storage="memory")
            data = bytes(range(256)) * 2000
            with topic.producer() as producer:
                for number in range(50):
                    producer.push({"number": number}, data)
            with topic.consumer("c") as consumer:
                for number in range(50):
                    event = consumer.pull(timeout=60)
                    assert event is not None
                    assert event.metadata == {"number": number}
                    assert bytes(event.data) == data
    finally:
        server.stop()


def test_a_number_that_cannot_be_is_refused(tmp_path: Path) -> None:
    for stripes in [0, 17]:
        with pytest.raises(thalweg.Error, match="1 to 16"):
            thalweg.Driver(address="tcp://127.0.0.1:1", stripes=stripes)
    with pytest.raises(thalweg.Error, match="tcp:// and tls://"):
        thalweg.Driver(address=f"unix://{tmp_path}/s", stripes=2)
