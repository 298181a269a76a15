"""The demo of steps, in short: it fails by itself where a step is missing or any picture differs."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

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
