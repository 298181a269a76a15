"""The tables of scripts/bench-sites, and what it takes a wrong token for."""

import base64
import importlib
import sys
from pathlib import Path
from typing import Any

import pytest

SITES = Path(__file__).resolve().parents[2] / "benchmarks" / "sites"


@pytest.fixture()
def load(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(SITES))
    yield importlib.import_module
    for name in ("tables", "tokens", "ways"):
        sys.modules.pop(name, None)


def run(way: str, clients: int, rate: float, state: str = "done") -> dict[str, Any]:
    done = {"mb_per_s": rate, "per_s": rate, "proxy_cpu_s_per_gb": 1.0, "all_cpu_s_per_gb": 2.0}
    return {
        "way": way,
        "work": "share",
        "bytes_each": 16 << 10,
        "clients": clients,
        "state": state,
        **(done if state == "done" else {}),
    }


def test_medians_and_what_stands_still_are_told(load: Any) -> None:
    tables = load("tables")
    runs = [run("direct", count, rate) for count in (1, 64) for rate in (100.0, 300.0, 200.0)]
    runs += [run("Thalweg relay", 1, 100.0), run("Thalweg relay", 64, 80.0)]
    runs += [run("stunnel", 1, 50.0), run("stunnel", 64, 0.0, "stalled")]
    told = tables.grid(runs)
    assert "| direct | 200 [100 to 300] | 200 [100 to 300] |" in told
    assert "| stunnel | 50 | **stands still** |" in told
    asked = tables.asked({"grid": runs})
    assert "worst (64 clients) | 2.5 × direct | **1.1 ×: missed** |" in asked
    assert "64 clients of the best number, 16 KiB | 80 % | **90 %: missed** |" in asked


def test_figures_go_between_the_marks_of_a_page(load: Any, tmp_path: Path) -> None:
    tables = load("tables")
    page = tmp_path / "page.md"
    page.write_text(f"before\n{tables.BEGIN}\nold\n{tables.END}\nbehind\n")
    tables.put("new", str(page))
    tables.put("newer", str(page))
    assert page.read_text() == f"before\n{tables.BEGIN}\n\nnewer\n{tables.END}\nbehind\n"


def test_wrong_tokens_are_wrong_where_they_are_meant_to_be(load: Any) -> None:
    tokens = load("tokens")
    blocks = [b"\x05\x00limit" + bytes([number]) * 96 for number in (1, 2)]
    raw = b"\x01" + b"i" * 32 + b"\x02" + b"".join(blocks) + b"k" * 32
    text = tokens.PREFIX + base64.urlsafe_b64encode(raw).decode().rstrip("=")
    cut = base64.urlsafe_b64decode(tokens.changed(text, tokens.cut_last_block)[len(tokens.PREFIX) :] + "==")
    assert cut == b"\x01" + b"i" * 32 + b"\x01" + blocks[0] + b"k" * 32
    flipped = base64.urlsafe_b64decode(
        tokens.changed(text, tokens.flip_signature)[len(tokens.PREFIX) :] + "=="
    )
    differs = [at for at in range(len(raw)) if raw[at] != flipped[at]]
    assert differs == [34 + len(blocks[0]) - 1]
