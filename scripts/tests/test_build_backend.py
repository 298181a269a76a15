"""The build backend where Rust is missing or too old."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).resolve().parents[1]


def ask(hook: str, path: Path) -> subprocess.CompletedProcess[str]:
    """Calls a hook in an interpreter that finds commands in `path` alone."""
    return subprocess.run(
        [sys.executable, "-c", f"import build_backend; print(build_backend.{hook}())"],
        env={"PATH": str(path), "HOME": str(path), "PYTHONPATH": str(SCRIPTS)},
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )


def cargo(path: Path, version: str) -> None:
    (path / "cargo").write_text(f"#!/bin/sh\necho cargo {version}\n")
    (path / "cargo").chmod(0o755)


@pytest.mark.skipif(Path("/usr/bin/cargo").exists(), reason="this machine's own cargo is found")
@pytest.mark.parametrize("version", [None, "1.63.0"])
def test_it_says_what_is_missing_before_anything_is_built(tmp_path: Path, version: str | None) -> None:
    if version:
        cargo(tmp_path, version)
    answer = ask("get_requires_for_build_wheel", tmp_path)
    assert answer.returncode == 1
    assert "building needs Rust" in answer.stdout
    assert (version or "no cargo found") in answer.stdout
    assert "Traceback" not in answer.stdout


def test_it_asks_for_no_toolchain_to_be_downloaded(tmp_path: Path) -> None:
    cargo(tmp_path, "1.99.0")
    assert ask("get_requires_for_build_wheel", tmp_path).stdout == "[]\n"
