"""The demo of steps, in short: it fails by itself where a step is missing or any picture differs."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import pytest

RUN = Path(__file__).resolve().parents[2] / "examples" / "steps" / "run.py"


def test_pictures_are_the_same_live_and_replayed_whoever_is_killed(tmp_path: Path) -> None:
    command = [sys.executable, str(RUN), str(tmp_path / "out"), "--steps", "24", "--particles", "200"]
    command += ["--rows", "32", "--columns", "50", "--ranks", "2", "--again", "1"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "step 8: the painter was killed" in done.stdout
    assert "step 16: the simulation was killed" in done.stdout
    assert "rank 1 goes on at step" in done.stdout
    assert "the same, bit for bit: 24 pictures" in done.stdout
    facts = json.loads((tmp_path / "out" / "facts.json").read_text())
    assert facts["steps"] == 24
    assert (tmp_path / "out" / "picture.png").read_bytes().startswith(b"\x89PNG")
    page = (tmp_path / "out" / "report.html").read_text()
    assert page.count("<svg") == 3 and page.count("data:image/") == 2


def fault(**given: list[int]) -> str | None:
    """What the demo says of two painters that were killed, a and b, a summary, and a training, of six steps.

    At most three wait for the slowest of them.
    """
    spec = spec_from_file_location("order", RUN.with_name("order.py"))
    assert spec is not None and spec.loader is not None
    order: Any = module_from_spec(spec)
    spec.loader.exec_module(order)
    whole = {"a": [*range(6)], "b": [*range(6)], "summary": [*range(6)], "training": [*range(1, 6)]}
    found: str | None = order.fault(whole | given, 6, killed={"a", "b"}, beginning={"training": 1}, queue=3)
    return found


def test_ranks_that_are_killed_have_again_what_not_all_of_them_had_released() -> None:
    assert fault() is None
    assert fault(a=[0, 1, 2, 2, 3, 4, 5]) is None
    # Rank b was ahead of rank a, which had not released step 2.
    assert fault(a=[0, 1, 2, 3, 4, 5], b=[0, 1, 2, 3, 4, 2, 3, 4, 5]) is None
    assert fault(a=[0, 1, 2, 2, 3, 4, 5], b=[0, 1, 2, 3, 4, 2, 3, 4, 5]) is None


@pytest.mark.parametrize(
    "given",
    [
        {"a": [0, 1, 2, 4, 5]},
        {"a": [0, 1, 2, 3, 1, 3, 4, 5]},
        {"b": [0, 1, 4, 2, 3, 4, 5]},
        {"b": [0, 1, 2, 3, 4]},
        {"b": [0, 1, 2, 1, 2, 1, 2, 3, 4, 5]},
        {"a": [1, 2, 3, 4, 5]},
        {"a": []},
        # More than the writer lets wait: the cursor has not moved.
        {"a": [0, 1, 2, 3, 0, 1, 2, 3, 4, 5]},
        {"summary": [0, 1, 2, 2, 3, 4, 5]},
        {"summary": [0, 1, 3, 2, 4, 5]},
        {"training": [1, 2, 4, 5]},
        # Each by itself is whole, but they are not given the same step in the same turn.
        {"a": [0, 1, 2, 2, 3, 4, 5], "b": [0, 1, 2, 3, 1, 2, 3, 4, 5]},
    ],
)
def test_the_demo_of_steps_notices(given: dict[str, list[int]]) -> None:
    assert fault(**given) is not None
