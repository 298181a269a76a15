"""scripts/bench-peers on machines that lack something, what it leaves, and its plots."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import xml.etree.ElementTree
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
REAL = ("bash", "dirname", "head", "sed", "sort")
sys.path.insert(0, str(ROOT / "benchmarks" / "peers"))


def run_with(directory: Path, tools: dict[str, str]) -> tuple[int, str]:
    """Runs the script where nothing but `tools`, and a little else, is on the PATH."""
    bin = directory / "bin"
    bin.mkdir()
    for name in REAL:
        real = shutil.which(name)
        assert real is not None
        (bin / name).symlink_to(real)
    # The cargo that is found comes first on the PATH with all that lies beside
    # it, which on Debian is the real `id`.
    rust = {"cargo": "echo cargo 1.99.0", "rustc": "echo rustc 1.99.0"}
    for name, script in {**rust, **tools}.items():
        (bin / name).write_text(f"#!{bin}/bash\n{script}\n")
        (bin / name).chmod(0o755)
    done = subprocess.run(
        [str(bin / "bash"), str(ROOT / "scripts" / "bench-peers")],
        env={**os.environ, "PATH": str(bin), "HOME": str(directory)},
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )
    return done.returncode, done.stdout


def test_an_ordinary_user_is_told_what_is_missing(tmp_path: Path) -> None:
    asked = tmp_path / "asked-of-apt"
    status, output = run_with(
        tmp_path, {"id": "echo 1000", "apt-get": f"echo >> {asked}", "cc": "true", "mvn": "true"}
    )
    assert status == 1
    assert "redis-server" in output and "apt-get update && apt-get install" in output
    assert "maven" not in output, "what is there is not asked for"
    assert not asked.exists()


def test_root_has_it_installed_and_is_told_so(tmp_path: Path) -> None:
    asked = tmp_path / "asked-of-apt"
    tools = {"id": "echo 0", "apt-get": f'echo "$@" >> {asked}', "cc": "false"}
    status, output = run_with(tmp_path, tools)
    assert status == 1, "the installer here installs nothing"
    assert "you are root, so they are installed now" in output
    assert "librdkafka-dev libhiredis-dev libzmq3-dev librabbitmq-dev redis-server" in asked.read_text()


def test_what_a_round_leaves_is_removed(tmp_path: Path) -> None:
    import servers

    if len(os.sched_getaffinity(0)) <= servers.CLIENT_CORE:
        pytest.skip("two cores are needed, one for each side")
    program = Path(sys.executable).with_name("thalweg")
    with servers.Thalweg(tmp_path / "server", program) as server:
        rates = server.bench("produce", metadata_bytes=100, events=100, durability="written")
        assert rates["events_per_s"] > 0
        given = ["topic", "list", "--group-file", str(server.group_file), "--json"]
        listed = subprocess.run([program, *given], check=True, capture_output=True)
        assert listed.stdout, "the topic stays until the round is over"
        server.clean()
        listed = subprocess.run([program, *given], check=True, capture_output=True)
        assert not listed.stdout


def test_another_build_is_measured_in_place_of_peers(tmp_path: Path) -> None:
    import servers

    if len(os.sched_getaffinity(0)) <= servers.CLIENT_CORE:
        pytest.skip("two cores are needed, one for each side")
    program = Path(sys.executable).with_name("thalweg")
    compare = ROOT / "benchmarks" / "peers" / "compare.py"
    given = ["--thalweg", program, "--against", program, "--python", sys.executable]
    given += ["--build", tmp_path / "run", "--output", tmp_path, "--rounds", "1", "--scale", "0.001"]
    done = subprocess.run(
        [sys.executable, compare, *map(str, given), "produce-1k"], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    results = json.loads((tmp_path / "builds.json").read_text())["produce-1k"]["results"]
    mine = [name for name in results if not name.endswith(", the other build")]
    assert mine and sorted(results) == sorted(mine + [f"{name}, the other build" for name in mine])
    assert all(name.startswith("Thalweg ") for name in results)


def test_plots_are_svg_with_every_bar(tmp_path: Path) -> None:
    import plots

    spread = {"median": 2.0, "min": 1.0, "max": 3.0}
    path = tmp_path / "a.svg"
    plots.bars(path, "Rates & more", "GB/s", [("Thalweg", spread), ("<others>", spread)])
    root = xml.etree.ElementTree.parse(path).getroot()
    texts = [element.text for element in root.iter() if element.tag.endswith("text")]
    assert "<others>" in texts and "Rates & more" in texts and texts.count("2") == 2
