"""The figures of scripts/bench-steps."""

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "benchmarks" / "peers"))

import steps  # noqa: E402


def test_figures_are_of_the_steps_behind_the_warm_up() -> None:
    warmup, count = steps.WARMUP, 5
    writer = [[1000 * n, 1000 * n + 10, 1000 * n + 30, 1000 * n + 30] for n in range(warmup + count)]
    reader = [[end + 100, end + 200, end + 600, end + 610] for _, _, end, _ in writer]
    # Steps of the warm-up are slow, and one of the others is.
    for step in range(warmup):
        writer[step][0] -= 10**6
    reader[-1] = [time + 2000 for time in reader[-1]]
    found = steps.figures(5000, writer, reader)
    phases = {name: of["median"] for name, of in found["phases_ns"].items()}
    assert phases == {
        "put": 10,
        "end_step": 20,
        "begin_step": 100,
        "gets": 400,
        "delay": 630,
        "read_interval": 1000,
    }
    assert found["stall"] == 3
    assert found["bytes_per_s"] == pytest.approx(5000 * 4 / 6e-6)


def test_a_line_is_found_again() -> None:
    found = steps.line([(1e6, 600.0), (2e6, 1100.0), (4e6, 2100.0)])
    assert found["overhead_ns"] == pytest.approx(100)
    assert found["bytes_per_s"] == pytest.approx(2e12)
    assert found["residuals_ns"] == pytest.approx([0, 0, 0], abs=1e-6)
