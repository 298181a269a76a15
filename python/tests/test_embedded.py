"""A server in the process itself."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import thalweg


def test_events_are_kept_from_one_run_to_the_next(tmp_path: Path) -> None:
    frame = np.arange(1_000_000, dtype=np.uint16)
    with thalweg.Driver.embedded(tmp_path / "data") as driver:
        topic = driver.create_topic("frames")
        assert topic.partitions[0].durability == "synced"
        with topic.producer() as producer:
            producer.push({"small": True}, b"some bytes")
            producer.push({"small": False}, frame)
    with thalweg.Driver.embedded(str(tmp_path / "data")) as driver:
        with driver.open_topic("frames").consumer("viewer") as consumer:
            small, large = consumer.pull(timeout=60), consumer.pull(timeout=60)
            assert small is not None and large is not None
            assert bytes(small.data) == b"some bytes"
            assert np.array_equal(large.numpy(np.uint16), frame)


def test_two_servers_do_not_share_a_directory(tmp_path: Path) -> None:
    with thalweg.Driver.embedded(tmp_path / "data"):
        with pytest.raises(thalweg.ServerError, match="data"):
            thalweg.Driver.embedded(tmp_path / "data")
    thalweg.Driver.embedded(tmp_path / "data").close()


def test_settings_are_those_of_the_server(tmp_path: Path) -> None:
    settings = {"memory_bytes_max": "256MiB", "disk_threads": 2}
    with thalweg.Driver.embedded(tmp_path / "data", settings=settings) as driver:
        assert driver.list_topics() == []
    with pytest.raises(thalweg.ServerError, match="no_such_key"):
        thalweg.Driver.embedded(tmp_path / "data", settings={"no_such_key": 1})
