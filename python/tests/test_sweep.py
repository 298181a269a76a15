"""The example of a parameter sweep loses nothing, whoever is killed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

RUN = Path(__file__).resolve().parents[2] / "examples" / "sweep" / "run.py"


def test_every_set_has_a_result_or_is_a_dead_letter(tmp_path: Path) -> None:
    command = [sys.executable, str(RUN), str(tmp_path), "--sets", "100", "--workers", "2"]
    command += ["--kills", "3", "--seed", "7"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "3 workers killed, seed 7\n98 sets have results" in done.stdout
    assert "set 99 is dead: no ground state for a coupling of -1.0" in done.stdout
    assert "0 sets have none" in done.stdout
