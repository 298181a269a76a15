"""The example of a steering loop: every step is answered, though the controller is killed."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

RUN = Path(__file__).resolve().parents[2] / "examples" / "steering" / "run.py"


def test_every_step_is_answered_and_every_simulation_reports(tmp_path: Path) -> None:
    command = [sys.executable, str(RUN), str(tmp_path), "--simulations", "2", "--steps", "100"]
    done = subprocess.run([*command, "--kills", "2"], capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "controllers killed: 2; simulations missing: 0\n200 round trips\n" in done.stdout
    counts = re.findall(r"^ *\d+ to +\d+ µs +(\d+)", done.stdout, re.MULTILINE)
    assert sum(map(int, counts)) == 200
