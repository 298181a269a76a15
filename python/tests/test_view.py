"""Views of data: what is selected, and what is outside."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import thalweg


def gather(view: thalweg.DataView, array: Any) -> bytes:
    raw = array.tobytes()
    return b"".join(raw[offset : offset + size] for offset, size in view.parts)


ARRAY = np.arange(5 * 3 * 2, dtype=np.int32).reshape(5, 3, 2)
WHOLE = thalweg.DataView(ARRAY.nbytes)


@pytest.mark.parametrize(
    "rows", [0, -1, 4, slice(1, 3), slice(None, None, -2), [3, 1, 1], range(2), np.array([4, 0])]
)
@pytest.mark.parametrize("dtype", [ARRAY.dtype, "int32", np.int32, 4])
def test_rows_are_numpys_rows(rows: Any, dtype: Any) -> None:
    view = WHOLE.rows(ARRAY.shape, dtype, rows)
    assert gather(view, ARRAY) == ARRAY[rows].tobytes()
    assert view.nbytes == ARRAY[rows].nbytes


@pytest.mark.parametrize("rows", [5, -6, [0, 5]])
def test_rows_outside_are_refused(rows: Any) -> None:
    with pytest.raises(ValueError, match="outside an array of 5 rows"):
        WHOLE.rows(ARRAY.shape, ARRAY.dtype, rows)


def test_an_array_larger_than_the_data_is_refused() -> None:
    with pytest.raises(ValueError, match="larger than this view of 120 bytes"):
        WHOLE.rows((6, 3, 2), np.int32, 0)
    with pytest.raises(ValueError, match="no rows"):
        WHOLE.rows((), np.int32, 0)
    with pytest.raises(ValueError, match="2\\^64"):
        WHOLE.rows((1, 2**40, 2**40), np.int32, 0)


def test_views_nest_and_count_within_their_parent() -> None:
    view = WHOLE.range(10, 100).stride(offset=5, count=4, block=3, gap=7)
    assert view.parts == [(15, 3), (25, 3), (35, 3), (45, 3)]
    assert view.segments([(2, 2), (0, 1)]).parts == [(17, 1), (25, 1), (15, 1)]
    assert view.range(0, 0).parts == [] and not view.range(0, 0)
    assert view == WHOLE.segments([(15, 3), (25, 3), (35, 3), (45, 3)])
    assert repr(view) == "DataView(12 bytes in 4 parts)"


@pytest.mark.parametrize(
    "select",
    [
        lambda view: view.range(119, 2),
        lambda view: view.range(2**63, 2**63),
        lambda view: view.stride(count=2, block=60, gap=1),
        lambda view: view.segments([(0, 1), (120, 1)]),
    ],
)
def test_bounds_are_kept(select: Any) -> None:
    with pytest.raises(ValueError, match="outside a view of 120 bytes"):
        select(WHOLE)


def test_numbers_that_are_none_are_refused() -> None:
    with pytest.raises(OverflowError):
        WHOLE.range(-1, 2)
    with pytest.raises(TypeError):
        WHOLE.range("0", 2)  # type: ignore[arg-type]
