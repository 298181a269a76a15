"""Arrays as events: `push_array` and `Event.array`."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
import thalweg

STRUCTURED = np.dtype([("x", "<f4"), ("name", "S5"), ("vector", ">i2", (2, 3))])
ALIGNED = np.dtype([("a", "u1"), ("b", "f8")], align=True)


def sent(topic: thalweg.Topic, *arrays: Any, **fields: Any) -> list[thalweg.Event]:
    with topic.producer() as producer:
        for array in arrays:
            producer.push_array(array, **fields)
    return list(topic.read(start=-len(arrays)))


@pytest.mark.parametrize(
    "array",
    [
        np.arange(12, dtype="<u2").reshape(3, 4),
        np.arange(12, dtype=">f8").reshape(3, 4),
        np.float32(7.5),
        np.array(3, dtype="i8"),
        np.zeros((0, 4), dtype="c16"),
        np.zeros(3, dtype=STRUCTURED),
        np.zeros(2, dtype=ALIGNED),
        np.array(["a", "longer"], dtype="<U6"),
        np.array(["2026-11-24T12:00"], dtype="datetime64[ns]"),
        np.asfortranarray(np.arange(24).reshape(2, 3, 4)),
        np.arange(24).reshape(4, 6)[::2, 1:4],
        np.arange(10)[::-1],
        np.array([True, False]),
        [[1, 2], [3, 4]],
        np.arange(1 << 18, dtype="u1").reshape(512, 512),
    ],
    ids=lambda array: f"{np.asarray(array).dtype}-{np.asarray(array).shape}",
)
def test_an_array_comes_back_as_it_was(topic: thalweg.Topic, array: Any) -> None:
    (event,) = sent(topic, array, frame=3)
    back = event.array()
    wanted = np.asarray(array)
    assert back.dtype == wanted.dtype and back.shape == wanted.shape
    assert back.tobytes() == wanted.tobytes()
    assert event.metadata["frame"] == 3
    if wanted.flags.c_contiguous or wanted.flags.f_contiguous:
        assert back.flags.f_contiguous == wanted.flags.f_contiguous
        assert back.flags.c_contiguous == wanted.flags.c_contiguous
    # The older way reads the same metadata, order and all.
    assert np.array_equal(event.numpy(), back)
    json.dumps(event.metadata)


def test_the_metadata_is_a_mapping_and_the_other_arguments_are_those_of_push(
    topic: thalweg.Topic,
) -> None:
    with topic.producer() as producer:
        producer.push_array(
            np.eye(2), {"time": 0.5}, key=b"k", headers={"h": "v"}, time=17, partition=0, run=4
        )
    (event,) = topic.read()
    assert event.metadata == {"time": 0.5, "run": 4, "dtype": "<f8", "shape": [2, 2]}
    assert (event.key, event.headers, event.time) == (b"k", (("h", b"v"),), 17)


def test_what_can_not_come_back_is_refused_with_a_way_out(topic: thalweg.Topic) -> None:
    masked = np.ma.masked_array([1, 2], mask=[False, True])
    with topic.producer() as producer:
        for array, word in [
            (np.array([{}], dtype=object), "Python objects"),
            (np.zeros(1, dtype=[("a", object)]), "Python objects"),
            (masked, "mask"),
            (np.zeros(2, dtype=STRUCTURED)[["vector", "x"]], "own types"),
        ]:
            with pytest.raises(thalweg.InvalidArgument, match=word):
                producer.push_array(array)
        with pytest.raises(thalweg.InvalidArgument, match="shape"):
            producer.push_array(np.eye(2), shape=3)
        with pytest.raises(thalweg.InvalidArgument, match="given in the metadata and"):
            producer.push_array(np.eye(2), {"a": 1}, a=2)
        with pytest.raises(thalweg.InvalidArgument, match="mapping"):
            producer.push_array(np.eye(2), [1, 2])  # type: ignore[arg-type]
        producer.push({"a": 1}, b"1234")
    (event,) = topic.read()
    with pytest.raises(thalweg.InvalidArgument, match="push_array"):
        event.array()


def test_an_array_is_the_programs_again_at_once(topic: thalweg.Topic) -> None:
    frame = np.zeros((512, 512), dtype="u2")
    with topic.producer() as producer:
        for number in range(5):
            frame[:] = number
            producer.push_array(frame)
    assert [int(event.array()[0, 0]) for event in topic.read()] == [0, 1, 2, 3, 4]


def test_a_part_of_an_array_is_not_taken_for_all_of_it(topic: thalweg.Topic) -> None:
    with topic.producer() as producer:
        producer.push_array(np.arange(100))

    def first(_metadata: Any, data: thalweg.DataView) -> thalweg.DataView:
        return data.range(0, 80)

    (event,) = topic.read(data=first)
    with pytest.raises(ValueError, match="80 bytes"):
        event.array()
    assert event.numpy(shape=10).tolist() == list(range(10))


def test_a_selector_is_not_asked_about_events_behind_the_end(topic: thalweg.Topic) -> None:
    asked: list[int] = []

    def select(metadata: Any, data: thalweg.DataView) -> thalweg.DataView:
        asked.append(metadata["n"])
        return data

    with topic.producer(batch=10) as producer:
        for n in range(10):
            producer.push_array(np.arange(3), n=n)
    assert len(list(topic.read(end=4, data=select))) == 4
    assert asked == [0, 1, 2, 3]


@pytest.mark.parametrize("dtype", ["O", "|O", [["a", "O"]], [["a", "<i4"], ["b", "|O8"]]])
def test_metadata_of_others_makes_no_pointers_of_bytes(topic: thalweg.Topic, dtype: Any) -> None:
    with topic.producer() as producer:
        producer.push({"dtype": dtype, "shape": [1]}, b"\x10" * 16)
    (event,) = topic.read()
    for read in (event.numpy, event.array, lambda: event.numpy(dtype="O")):
        with pytest.raises(ValueError, match="Python objects"):
            read()


@pytest.mark.parametrize(
    "metadata",
    [
        {"dtype": "no such type", "shape": [1]},
        {"dtype": 7, "shape": [1]},
        {"dtype": {"names": "x"}, "shape": [1]},
        {"dtype": [], "shape": [1]},
        {"dtype": [["a"]], "shape": [1]},
        {"dtype": [[["t", "n"], "<i4", [-1]]], "shape": [1]},
        {"dtype": "<u1", "shape": [-3]},
        {"dtype": "<u1", "shape": "many"},
        {"dtype": "<u1", "shape": [2**62]},
        {"dtype": "<u1", "shape": [4, 4], "order": 7},
        {"dtype": "V0", "shape": [16]},
        {"dtype": None, "shape": None},
    ],
)
def test_metadata_that_describes_no_array_is_an_error_or_bytes(
    topic: thalweg.Topic, metadata: dict[str, Any]
) -> None:
    with topic.producer() as producer:
        producer.push(metadata, b"\x10" * 16)
    (event,) = topic.read()
    try:
        array = event.array()
    except (ValueError, TypeError):
        return
    assert array.tobytes() == b"\x10" * 16
