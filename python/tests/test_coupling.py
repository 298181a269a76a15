"""The example of two coupled programs: neither waits for the other for ever."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

RUN = Path(__file__).resolve().parents[2] / "examples" / "coupling" / "run.py"


def test_two_programs_that_need_each_other_compute_as_one(tmp_path: Path) -> None:
    command = [sys.executable, str(RUN), str(tmp_path), "--steps", "60"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "60 steps of two programs are those of one\n" in done.stdout
