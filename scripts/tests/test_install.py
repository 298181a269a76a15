"""What `make install` brings, from what the Rust tests have built."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def prefix(tmp_path_factory: pytest.TempPathFactory) -> Path:
    prefix = tmp_path_factory.mktemp("install") / "prefix"
    subprocess.run([ROOT / "scripts" / "install", "--debug", prefix], check=True, stdout=subprocess.DEVNULL)
    return prefix


def run(*words: str | Path, **options: object) -> str:
    return subprocess.run(words, check=True, capture_output=True, text=True, **options).stdout  # type: ignore[call-overload,no-any-return]


def test_the_command_and_its_pages_are_there(prefix: Path) -> None:
    command = prefix / "bin" / "thalweg"
    assert run(command, "--version").startswith("thalweg ")
    share = prefix / "share"
    for name in (
        "man/man1/thalweg.1",
        "man/man1/thalweg-serve.1",
        "man/man1/thalweg-config-show.1",
        "bash-completion/completions/thalweg",
        "zsh/site-functions/_thalweg",
        "fish/vendor_completions.d/thalweg.fish",
        "doc/thalweg/thalweg.toml",
    ):
        assert (share / name).stat().st_size > 0, name
    run("bash", "-n", share / "bash-completion/completions/thalweg")
    for name in ("libthalweg.so", "libthalweg.a", "pkgconfig/thalweg.pc", "cmake/thalweg/thalweg-config.cmake"):
        assert (prefix / "lib" / name).exists(), name


def test_the_example_of_a_configuration_is_taken(prefix: Path, tmp_path: Path) -> None:
    example = prefix / "share/doc/thalweg/thalweg.toml"
    checked = run(prefix / "bin/thalweg", "serve", "--check", "--config", example, cwd=tmp_path)
    assert "error" not in checked
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("whose", ["system", "user"])
def test_units_name_the_installed_command(prefix: Path, whose: str) -> None:
    unit = prefix / "lib/systemd" / whose / "thalweg.service"
    text = unit.read_text()
    (start,) = (line for line in text.splitlines() if line.startswith("ExecStart="))
    command = start.removeprefix("ExecStart=").split()[0]
    assert Path(command) == prefix / "bin/thalweg"
    assert os.access(command, os.X_OK)
    assert "Type=notify" in text and "@" not in text.replace("@prefix@", "@")
    assert ("User=thalweg" in text) == (whose == "system")
    analyze = shutil.which("systemd-analyze")
    if analyze is not None:
        verified = subprocess.run(
            [analyze, "verify", f"--{whose}", "--man=no", unit], capture_output=True, text=True
        )
        # It loads all that the unit depends on, and says what it thinks of that too.
        complaints = [line for line in verified.stderr.splitlines() if "thalweg.service" in line]
        assert not complaints, verified.stderr


def test_a_packager_installs_below_another_root(prefix: Path, tmp_path: Path) -> None:
    env = {**os.environ, "DESTDIR": str(tmp_path)}
    run(ROOT / "scripts" / "install", "--debug", "/opt/thalweg", env=env)
    installed = tmp_path / "opt/thalweg"
    assert run(installed / "bin/thalweg", "--version") == run(prefix / "bin/thalweg", "--version")
    unit = (installed / "lib/systemd/system/thalweg.service").read_text()
    assert "ExecStart=/opt/thalweg/bin/thalweg " in unit
