"""Standing selections: what is read of a step before the program asks for it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import thalweg
from thalweg import steps


INDICES: list[Any] = [..., np.s_[1:4, 2], np.s_[2:, ::2], 3, np.s_[3:5, 2:4], np.s_[0:0]]


def field(step: int, rows: int, columns: int) -> np.ndarray[Any, Any]:
    return np.arange(rows * columns, dtype="<f8").reshape(rows, columns) + step * 10_000


def shape_of(step: int) -> tuple[int, int]:
    return 6 + step % 4, 5 + step % 3


def write(driver: thalweg.Driver, name: str, count: int) -> None:
    """Steps of two ranks, whose shapes change; `late` comes with the fourth."""
    writers = [steps.Writer(driver, name, rank=rank, ranks=2) for rank in range(2)]
    for number in range(count):
        rows, columns = shape_of(number)
        whole = field(number, rows, columns)
        for rank, writer in enumerate(writers):
            part = slice(0, rows // 2) if rank == 0 else slice(rows // 2, rows)
            with writer.step() as step:
                step.put("E", whole[part], shape=whole.shape, start=(part.start, 0))
                step.put("mesh", whole[:rank], local=True)
                if number >= 3:
                    step.put("late", whole[part] * 2, shape=whole.shape, start=(part.start, 0))
                step.value("dt", 0.5)
    for writer in writers:
        writer.close()


@pytest.mark.parametrize(
    "preload",
    [
        "all",
        ["E", "mesh", "absent"],
        {"E": np.s_[1:4, 2]},
        {"E": np.s_[2:, ::2], "late": ...},
        {"E": np.s_[:100]},
        {"E": 3, "mesh": np.s_[...]},
        None,
    ],
)
def test_what_stands_is_what_is_read(driver: thalweg.Driver, name: str, preload: Any) -> None:
    write(driver, name, 8)
    with steps.Reader(driver, name, preload=preload) as reader:
        seen = 0
        for step in reader:
            whole = field(step.number, *shape_of(step.number))
            for index in INDICES:
                assert np.array_equal(step["E"][index], whole[index])
            assert ("late" in step) == (step.number >= 3)
            if "late" in step:
                out = np.zeros((2, whole.shape[1]))
                step.get_many({"late": np.s_[2:4], "E": 0}, out={"late": out})
                assert np.array_equal(out, whole[2:4] * 2)
            assert np.array_equal(step["mesh"].blocks[1][...], whole[:1])
            assert step["dt"][...] == 0.5
            seen += 1
        assert seen == 8


def test_a_selection_holds_from_the_next_step_on(driver: thalweg.Driver, name: str) -> None:
    write(driver, name, 8)
    with steps.Reader(driver, name, preload={"E": 0}, preload_bytes_max=1 << 20) as reader:
        for step in reader:
            whole = field(step.number, *shape_of(step.number))
            # Each row stands while another one is asked for.
            for row in range(whole.shape[0]):
                assert np.array_equal(step["E"][row], whole[row])
                reader.preload({"E": row})
                assert np.array_equal(step["E"][row], whole[row])


@pytest.mark.parametrize("wanted", [{"E": -1}, {"E": np.s_[-3:]}, {"E": np.s_[::-1]}, {"E": True}])
def test_what_needs_the_shape_is_refused(driver: thalweg.Driver, name: str, wanted: Any) -> None:
    steps.create_stream(driver, name)
    with pytest.raises(thalweg.InvalidArgument, match="before its shape is known"):
        steps.Reader(driver, name, preload=wanted)
    with steps.Reader(driver, name) as reader:
        with pytest.raises(thalweg.InvalidArgument):
            reader.preload(wanted)
        with pytest.raises(thalweg.InvalidArgument, match='"all"'):
            reader.preload("everything")
