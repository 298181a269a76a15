"""Steps whose data stays with their writer until somebody reads it."""

from __future__ import annotations

import numpy as np
import pytest

import thalweg
from thalweg import steps


def stored(driver: thalweg.Driver, name: str) -> int:
    """Bytes of data that the server has of a stream."""
    topic = driver.open_topic(name)
    topic.refresh()
    return sum(partition.bytes for partition in topic.partitions[1:])


def test_what_nobody_reads_does_not_travel(driver: thalweg.Driver, name: str) -> None:
    field = np.arange(1 << 19, dtype="f8")
    options = {"storage": "memory", "keep": "writer", "close_timeout": 60.0}
    steps.create_stream(driver, name, storage="memory")
    looking = steps.Reader(driver, name, name="looking")
    reading = steps.Reader(driver, name, name="reading")
    with steps.Writer(driver, name, **options) as writer:  # type: ignore[arg-type]
        for number in range(3):
            with writer.step({"number": number}, wait="committed") as s:
                s.put("E", field + number)
        for number in range(3):
            step = looking.next(60)
            assert step is not None and step.attrs["number"] == number
            assert step["E"].shape == field.shape
        assert stored(driver, name) < 100_000
        for number in range(3):
            step = reading.next(60)
            assert step is not None
            if number == 1:
                assert np.array_equal(step["E"][:], field + 1)
                assert np.array_equal(step["E"][5:9], field[5:9] + 1)
        assert field.nbytes < stored(driver, name) < field.nbytes + 100_000
        looking.close()
        reading.close()
    with pytest.raises(thalweg.InvalidArgument, match="keep is"):
        steps.Writer(driver, name, keep="reader")  # type: ignore[arg-type]
    with pytest.raises(thalweg.InvalidArgument, match="not in memory"):
        steps.Writer(driver, f"{name}-disk", keep="writer")


def test_data_goes_with_its_writer(driver: thalweg.Driver, name: str) -> None:
    writer = steps.Writer(
        driver, name, storage="memory", keep="writer", session_timeout=0.3, held_bytes=1 << 20
    )
    for number in range(2):
        with writer.step(wait="committed") as s:
            s.put("E", np.full(10, number))
    with steps.Reader(driver, name) as reader:
        first = reader.next(60)
        assert first is not None and first["E"][:].tolist() == [0] * 10
        second = reader.next(60)
        assert second is not None
        # Left by an exception, it leaves its run open.
        with pytest.raises(RuntimeError), writer:
            raise RuntimeError("the simulation diverges")
        with pytest.raises(thalweg.OutOfRange, match="step 1 of run 1 .* rank 0 kept its part"):
            second["E"][:]
