"""The build backend of `pip install .`: one wheel with module and command.

maturin leaves a binary target out of a wheel that has an extension module. So
this backend builds the `thalweg` command itself, puts it where `[tool.maturin]
data` in pyproject.toml points, and hands over to maturin, which packs both.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
COMMANDS = ROOT / "build" / "thalweg.data" / "scripts"

Settings = dict[str, Any] | None


def build_wheel(wheel_directory: str, config_settings: Settings = None,
                metadata_directory: str | None = None) -> str:
    _find_cargo()
    _build_command()
    return _maturin().build_wheel(wheel_directory, config_settings, metadata_directory)


def build_editable(wheel_directory: str, config_settings: Settings = None,
                   metadata_directory: str | None = None) -> str:
    _find_cargo()
    _build_command()
    return _maturin().build_editable(wheel_directory, config_settings, metadata_directory)


def build_sdist(sdist_directory: str, config_settings: Settings = None) -> str:
    sys.exit("thalweg: there is no source archive yet; install from a clone with `pip install .`")


def prepare_metadata_for_build_wheel(metadata_directory: str, config_settings: Settings = None) -> str:
    _find_cargo()
    COMMANDS.mkdir(parents=True, exist_ok=True)
    return _maturin().prepare_metadata_for_build_wheel(metadata_directory, config_settings)


prepare_metadata_for_build_editable = prepare_metadata_for_build_wheel


def get_requires_for_build_wheel(config_settings: Settings = None) -> list[str]:
    # maturin's own answer would fetch a Rust toolchain where there is none. Ours
    # is to say so, before anything else is done.
    _find_cargo()
    return []


get_requires_for_build_editable = get_requires_for_build_wheel


def get_requires_for_build_sdist(config_settings: Settings = None) -> list[str]:
    return []


def _maturin() -> Any:
    import maturin

    return maturin


def _find_cargo() -> None:
    """Puts a cargo that is new enough first on PATH, or ends with what to do."""
    lines = (ROOT / "Cargo.toml").read_text().splitlines()
    needed = next(line.split('"')[1] for line in lines if line.startswith("rust-version"))
    home = Path(os.environ.get("CARGO_HOME", Path.home() / ".cargo"))
    seen = []
    for cargo in (shutil.which("cargo"), home / "bin" / "cargo", "/usr/bin/cargo"):
        version = _version(cargo)
        if version is None:
            continue
        if _numbers(version) >= _numbers(needed):
            os.environ["PATH"] = f"{Path(str(cargo)).parent}{os.pathsep}{os.environ.get('PATH', '')}"
            return
        seen.append(f"{cargo} is {version}")
    sys.exit(
        f"thalweg: building needs Rust {needed} or newer ({'; '.join(seen) or 'no cargo found'}).\n"
        "On Debian 12 an administrator runs: apt-get install cargo-web gcc libc6-dev\n"
        "Elsewhere use the system's packages or rustup."
    )


def _version(cargo: str | Path | None) -> str | None:
    if cargo is None or not os.access(cargo, os.X_OK):
        return None
    answer = subprocess.run([cargo, "--version"], capture_output=True, text=True)
    words = answer.stdout.split()
    return words[1] if answer.returncode == 0 and len(words) > 1 else None


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("-")[0].split("."))


def _build_command() -> None:
    """Builds `thalweg` and lays it where maturin takes scripts from."""
    shutil.rmtree(COMMANDS, ignore_errors=True)
    COMMANDS.mkdir(parents=True)
    if not (ROOT / "crates" / "thalweg").exists():
        return
    # Cargo says where the file is, for the target directory can be anywhere.
    build = subprocess.run(
        ["cargo", "build", "--release", "--locked", "--package", "thalweg", "--bin", "thalweg",
         "--message-format", "json-render-diagnostics"],
        cwd=ROOT, stdout=subprocess.PIPE, text=True,
    )
    if build.returncode != 0:
        sys.exit("thalweg: cargo could not build the thalweg command; its messages are above")
    messages = (json.loads(line) for line in build.stdout.splitlines())
    binary = next(m["executable"] for m in messages
                  if m["reason"] == "compiler-artifact" and m["target"]["name"] == "thalweg"
                  and m["executable"])
    command = COMMANDS / "thalweg"
    shutil.copy2(binary, command)
    # Debug information makes most of its size, and an installed command needs none.
    if shutil.which("strip"):
        subprocess.run(["strip", "--strip-debug", command], check=True)
