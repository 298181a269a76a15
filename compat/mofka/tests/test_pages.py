"""The pages that tell how to switch do what they say."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import thalweg

ROOT = Path(__file__).resolve().parents[3]
RUN_PAGE = ROOT / "python" / "tests" / "run_page.py"


@pytest.mark.parametrize("page", ["mofka.md", "diaspora.md", "flowcept.md"])
def test_page(tmp_path: Path, page: str) -> None:
    # The command is the one of this environment.
    path = f"{Path(thalweg.executable()).parent}{os.pathsep}{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        [sys.executable, str(RUN_PAGE), str(ROOT / "docs" / "programs" / page)],
        cwd=tmp_path, capture_output=True, text=True, timeout=100, env={**os.environ, "PATH": path},
    )
    assert done.returncode == 0, done.stdout + done.stderr
