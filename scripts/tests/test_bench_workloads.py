"""Tables of the published experiments: what did not come whole is said beside its figure."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

ROOT = Path(__file__).resolve().parents[2]


def load(name: str) -> ModuleType:
    path = ROOT / "benchmarks" / "workloads" / f"{name}.py"
    spec = importlib.util.spec_from_file_location(f"workloads_{name}", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def run(on: str, rate: float, **counts: int) -> dict[str, Any]:
    return {
        "experiment": "dstream-sharing",
        "on": on,
        "architecture": "direct",
        "consumers": 4,
        "wall": {"messages_per_second": rate},
        "received": counts,
        "unanswered": None,
        "rtt": None,
        "cpu_seconds_per_gigabyte": {"server": 1.0, "proxies": None, "clients": 2.0},
    }


def test_a_figure_has_its_spread_and_what_is_lost_is_said() -> None:
    tables = load("tables")
    told = tables.tables([run("A", 1000), run("A", 3000), run("A", 2000), run("B", 500, lost=1)])
    assert "| direct | 4 | 2,000 [1,000 to 3,000] | 500 (not whole) |" in told


def test_architectures_have_the_names_of_the_command_line() -> None:
    compare = load("compare")
    assert compare.name_of("direct") == "direct"
    assert compare.name_of({"proxied": {"by": "relay", "log": "read"}}) == "proxied:relay"


def test_the_page_has_the_figures_of_its_file() -> None:
    tables = load("tables")
    file = ROOT / "benchmarks" / "results" / "2026-11-27-workloads-architectures.json"
    page = (ROOT / "docs" / "benchmarks-workloads.md").read_text()
    assert file.name in page
    assert tables.tables(json.loads(file.read_text())["runs"]) in page
