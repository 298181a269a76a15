"""The command and the extension are built from the same crates: each is compiled once, and not once for each."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def features(package: str) -> dict[str, str]:
    """The features of each crate of a package's build, by name and version."""
    cargo = shutil.which("cargo")
    if cargo is None:
        pytest.skip("needs cargo")
    command = [cargo, "tree", "--locked", "-p", package, "-e", "normal,build", "--prefix", "none", "--no-dedupe"]
    tree = subprocess.run([*command, "-f", "{p}|{f}"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    found: dict[str, str] = {}
    for line in tree.splitlines():
        crate, _, which = line.partition("|")
        found[crate.split(" (")[0]] = which
    return found


def test_crates_that_command_and_extension_share_have_the_same_features() -> None:
    command, extension = features("thalweg"), features("thalweg-python")
    both = command.keys() & extension.keys()
    assert len(both) > 50
    others = {crate: (command[crate], extension[crate]) for crate in both if command[crate] != extension[crate]}
    assert not others, "give crates/python or the workspace the features that differ"
