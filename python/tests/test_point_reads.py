"""Reading without a consumer: some events of a partition, some data of an event."""

from __future__ import annotations

import numpy as np
import pytest

import thalweg

FRAME = np.arange(300 * 400, dtype=np.uint16).reshape(300, 400)


@pytest.fixture(params=["memory", "disk"])
def frames(request: pytest.FixtureRequest, driver: thalweg.Driver, name: str) -> thalweg.Topic:
    topic = driver.create_topic(name, storage=request.param)
    with topic.producer() as producer:
        for i in range(10):
            producer.push({"i": i}, FRAME if i % 2 else b"short")
    return topic


def test_events_are_fetched_from_a_position_on(frames: thalweg.Topic) -> None:
    events = frames.fetch(0, 3, timeout=60)
    assert [event.metadata["i"] for event in events] == list(range(3, 3 + len(events)))
    again = frames.fetch(0, events[0].id)
    assert again[0].id == events[0].id
    assert frames.fetch(0, 10) == []
    assert events[0].data_size == FRAME.nbytes
    with pytest.raises(thalweg.exceptions.InvalidArgument, match="read_data"):
        events[0].numpy()
    with pytest.raises(ValueError, match="without a consumer"):
        events[0].acknowledge()


def test_data_is_read_as_a_whole_or_in_parts(frames: thalweg.Topic) -> None:
    short, large = (frames.fetch(0, offset)[0] for offset in (0, 1))
    assert bytes(frames.read_data(short)) == b"short"
    assert bytes(frames.read_data(large)) == FRAME.tobytes()
    rows = thalweg.DataView(large.data_size).rows(FRAME.shape, FRAME.dtype, slice(5, 8))
    assert bytes(frames.read_data(large, rows)) == FRAME[5:8].tobytes()
    target = np.zeros((3, 400), np.uint16)
    assert frames.read_data(large, rows, buffer=target) is target
    assert np.array_equal(target, FRAME[5:8])
    nothing = thalweg.DataView(0)
    assert bytes(frames.read_data(large, nothing)) == b""


def test_what_cannot_be_read_is_refused(frames: thalweg.Topic) -> None:
    large = frames.fetch(0, 1)[0]
    with pytest.raises(thalweg.InvalidArgument, match="3 bytes"):
        frames.read_data(large, buffer=bytearray(3))
    with pytest.raises(thalweg.Error):
        frames.read_data(large, thalweg.DataView(large.data_size + 1))
    with pytest.raises(thalweg.Error):
        frames.fetch(7, 0)
