"""Held, pinned and preloaded steps, all in one stream."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest

import thalweg
from thalweg import steps

LENGTH = 50_000


def field(number: int) -> np.ndarray[Any, Any]:
    return np.arange(LENGTH, dtype="f8") + 1000 * number


@pytest.mark.parametrize("preload", ["all", {"E": np.s_[100:200]}, None])
def test_a_pinned_step_is_kept_though_its_writer_keeps_the_others(
    driver: thalweg.Driver, name: str, preload: Any
) -> None:
    steps.create_stream(driver, name, storage="memory", retention={"count": 4})
    writer = steps.Writer(driver, name, keep="writer", close_timeout=60.0)
    for number in range(12):
        with writer.step(wait="committed", pin=number == 0) as s:
            s.put("E", field(number))
    seen = []
    reader = steps.Reader(driver, name, name="late", start="oldest", preload=preload)
    closing = threading.Thread(target=writer.close)
    closing.start()
    for step in reader:
        assert np.array_equal(step["E"][100:200], field(step.number)[100:200])
        assert np.array_equal(step["E"][:], field(step.number))
        seen.append(step.number)
    closing.join()
    reader.close()
    assert seen[0] == 0
    assert seen[-1] == 11
    assert seen == sorted(set(seen))


def test_what_is_read_ahead_of_a_writer_that_keeps_it_is_asked_for_once(
    driver: thalweg.Driver, name: str
) -> None:
    steps.create_stream(driver, name, storage="memory")
    with (
        steps.Writer(driver, name, keep="writer", queue=2) as writer,
        steps.Reader(driver, name, preload="all") as reader,
    ):
        for number in range(6):
            with writer.step() as s:
                s.put("E", field(number))
            step = reader.next(60)
            assert step is not None
            assert np.array_equal(step["E"][:], field(number))
