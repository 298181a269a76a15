"""Descriptors of data, views of views, and the bytes that they select."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

from diaspora_stream.api import ByteArrayAllocator, DataDescriptor, Driver, Exception as MofkaException, TopicHandle


def of(size: int) -> DataDescriptor:
    return DataDescriptor("location", size)


def test_a_descriptor() -> None:
    assert (of(1024).size, of(1024).location, of(1024).flatten()) == (1024, "location", [(0, 1024)])
    assert (DataDescriptor().size, DataDescriptor().location, DataDescriptor().flatten()) == (0, "", [])
    assert DataDescriptor.Null() == DataDescriptor() and of(3) == of(3) != of(4)
    with pytest.raises(MofkaException):
        of(-1)


def test_a_sub_view_is_cut_at_its_bounds() -> None:
    assert of(1024).make_sub_view(offset=100, size=200).flatten() == [(100, 200)]
    assert of(1024).make_sub_view(900, 200).size == 124
    assert of(1024).make_sub_view(offset=1200, size=200).size == 0
    assert of(1024).make_sub_view(offset=100, size=200).location == "location"


def test_a_stride_that_leaves_its_bounds_is_refused() -> None:
    view = of(1024).make_stride_view(offset=0, num_blocks=4, block_size=64, gap_size=192)
    assert view.size == 256 and view.flatten() == [(0, 64), (256, 64), (512, 64), (768, 64)]
    assert of(1024).make_stride_view(0, 4, 64, 192) == view
    assert of(1024).make_stride_view(offset=0, numblocks=4, blocksize=64, gapsize=192) == view
    for stride in ((0, 4, 128, 192), (1, 4, 64, 192), (0, -1, 1, 1)):
        with pytest.raises(MofkaException):
            of(1024).make_stride_view(*stride)
    assert of(12).make_stride_view(0, 3, 4, 0).flatten() == [(0, 12)]
    with pytest.raises(TypeError):
        of(12).make_stride_view(0, 3)


def test_segments_ascend_and_stay_inside() -> None:
    view = of(1024).make_unstructured_view(segments=[(0, 100), (200, 100), (400, 100)])
    assert view.size == 300 and view.location == "location"
    for segments in ([(0, 100), (1000, 200)], [(0, 200), (100, 200)], [(200, 10), (0, 10)], [(-1, 5)]):
        with pytest.raises(MofkaException):
            of(1024).make_unstructured_view(segments=segments)


def test_views_of_views() -> None:
    part = of(1024).make_sub_view(100, 200)
    assert part.make_sub_view(10, 20).flatten() == [(110, 20)]
    assert part.make_sub_view(150, 20).flatten() == [(250, 20)]
    assert part.make_sub_view(190, 20).flatten() == [(290, 10)]
    assert part.make_sub_view(200, 20).flatten() == []
    stride = part.make_stride_view(0, 4, 10, 40)
    assert stride.make_sub_view(5, 10).flatten() == [(105, 5), (150, 5)]
    assert stride.make_unstructured_view([(0, 1), (9, 2), (39, 1)]).flatten() == [(100, 1), (109, 1), (150, 1), (259, 1)]


def bytes_of(view: DataDescriptor, whole: bytes) -> bytes:
    return b"".join(whole[offset : offset + size] for offset, size in view.flatten())


def random_view(dice: random.Random, view: DataDescriptor, content: bytes) -> tuple[DataDescriptor, bytes]:
    """Any view of a view, and the bytes that it selects, by slicing alone."""
    size = view.size
    kind = dice.randrange(3)
    if kind == 0:
        offset, length = dice.randrange(size + 5), dice.randrange(size + 5)
        return view.make_sub_view(offset, length), content[offset : offset + length]
    if kind == 1:
        block, gap = dice.randrange(1, 6), dice.randrange(4)
        offset = dice.randrange(size + 1)
        count = (size - offset) // (block + gap)
        starts = [offset + i * (block + gap) for i in range(count)]
        return view.make_stride_view(offset, count, block, gap), b"".join(content[s : s + block] for s in starts)
    cuts = sorted(dice.sample(range(size + 1), min(size + 1, 2 * dice.randrange(4))))
    pairs = list(zip(cuts[::2], cuts[1::2]))
    return (
        view.make_unstructured_view([(a, b - a) for a, b in pairs]),
        b"".join(content[a:b] for a, b in pairs),
    )


@pytest.mark.parametrize("seed", range(50))
def test_nested_views_select_what_slices_of_slices_do(seed: int) -> None:
    dice = random.Random(seed)
    whole = bytes(range(200))
    view, content = of(len(whole)), whole
    for _ in range(4):
        view, content = random_view(dice, view, content)
        assert bytes_of(view, whole) == content and view.size == len(content), f"seed {seed}"


# The same, through a server.

SELECTIONS: list[tuple[Any, bytes]] = [
    (lambda d: None, b""),
    (lambda d: DataDescriptor(), b""),
    (lambda d: d, b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"),
    (lambda d: d.make_sub_view(offset=13, size=26), b"nopqrstuvwxyzABCDEFGHIJKLM"),
    (lambda d: d.make_stride_view(offset=13, num_blocks=3, block_size=4, gap_size=2), b"nopqtuvwzABC"),
    (lambda d: d.make_unstructured_view(segments=[(3, 6), (15, 4), (27, 8)]), b"defghipqrsBCDEFGHI"),
    (lambda d: d.make_sub_view(50, 100), b"YZ"),
    (lambda d: d.make_sub_view(60, 100), b""),
    (lambda d: d.make_sub_view(10, 20).make_sub_view(15, 20), b"zABCD"),
    (lambda d: d.make_sub_view(13, 26).make_stride_view(0, 3, 4, 2).make_sub_view(2, 4), b"pqtu"),
    (lambda d: d.make_stride_view(0, 13, 2, 2).make_unstructured_view([(1, 2), (5, 1)]), b"bej"[:2] + b"j"),
    (lambda d: DataDescriptor("made up", 1000), b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"),
]


@pytest.mark.parametrize("options", [{}, {"inline_along": False}])
def test_selections_of_an_event(dialect, topic: TopicHandle, options: dict[str, Any]) -> None:
    producer = dialect.producer(topic)
    producer.push({}, [b"abcdefghijklmnopqrstuvwxyz", b"ABCDEFGHIJKLMNOPQRSTUVWXYZ"])
    dialect.flush(producer)
    for number, (select, wanted) in enumerate(SELECTIONS):
        consumer = dialect.consumer(topic, f"c{number}", lambda m, d: select(d), ByteArrayAllocator, options=options)
        [data] = dialect.wait(consumer.pull()).data
        assert data == wanted, number


def test_rows_of_an_array_land_in_arrays(dialect, topic: TopicHandle) -> None:
    array = np.arange(64 * 1000, dtype=np.float64).reshape(64, 1000)
    producer = dialect.producer(topic)
    producer.push({"shape": array.shape}, array)
    dialect.flush(producer)

    def select(metadata: Any, descriptor: DataDescriptor) -> DataDescriptor:
        row = 8 * metadata["shape"][1]
        return descriptor.make_sub_view(16 * row, 32 * row).make_stride_view(0, 8, row, 3 * row)

    consumer = dialect.consumer(topic, "c", select, lambda m, d: [np.empty((8, 1000))])
    [rows] = dialect.wait(consumer.pull()).data
    assert np.array_equal(rows, array[16:48:4])
