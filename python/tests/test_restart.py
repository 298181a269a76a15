"""The server dies in the middle and comes back; the clients go on."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import thalweg


@pytest.mark.parametrize("durability", ["written", "synced"])
def test_a_stream_goes_on_after_a_kill(server: Any, durability: Any) -> None:
    frame = np.arange(50_000, dtype=np.uint16)
    with server.connect() as driver:
        topic = driver.create_topic("frames", storage="disk", durability=durability)
        with topic.producer() as producer, topic.consumer("viewer") as consumer:
            futures = []
            seen = []
            for i in range(300):
                futures.append(producer.push({"i": i}, frame if i % 10 == 0 else None))
                if i in (100, 200):
                    futures[i - 50].result(timeout=100)
                    server.kill()
                    server.start()
            while len(seen) < 300:
                event = consumer.pull(timeout=100)
                assert event is not None, f"{len(seen)} of 300 events came"
                seen.append((event.metadata["i"], event.id.offset))
                if event.data_size:
                    assert np.array_equal(event.numpy(np.uint16), frame)
                event.acknowledge()
            ids = [future.result(timeout=100) for future in futures]
            assert [id.offset for id in ids] == list(range(300))
            assert seen == [(i, i) for i in range(300)]
            assert consumer.gaps == []
        [cursor] = driver.cursors(topic, "viewer")
        assert cursor.offset == 300


def test_a_wait_without_a_server_says_what_it_waited_for(server: Any) -> None:
    with server.connect() as driver:
        topic = driver.create_topic("frames", storage="memory")
        producer = topic.producer()
        producer.push({}).result()
        server.kill()
        future = producer.push({})
        with pytest.raises(thalweg.Timeout, match="frames"):
            future.result(timeout=0.2)
        with pytest.raises(TimeoutError, match="frames"):
            producer.flush(timeout=0.2)
        with pytest.raises(thalweg.Error):
            driver.close(timeout=0.2)


def test_a_strangers_server_is_refused(server: Any, tmp_path: Any) -> None:
    other = type(server)(tmp_path / "other")
    (tmp_path / "other").mkdir()
    server.connect().close()
    with thalweg.Driver(server.group_file, connect_timeout=2.0) as driver:
        topic = driver.create_topic("frames", storage="memory")
        producer = topic.producer()
        producer.push({}).result()
        server.kill()
        server.group_file.unlink(missing_ok=True)
        other.group_file = server.group_file
        other.start()
        try:
            with pytest.raises(thalweg.Error):
                producer.push({}).result(timeout=5)
            with pytest.raises(thalweg.WrongServer, match="unix:"):
                driver.list_topics()
            with pytest.raises(thalweg.Error):
                driver.close(timeout=0.2)
        finally:
            other.stop()
