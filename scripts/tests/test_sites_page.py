"""The report of `make demo-sites`."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

PAGE = Path(__file__).parents[2] / "examples" / "sites" / "page.py"


@pytest.fixture(scope="module")
def page() -> ModuleType:
    pytest.importorskip("PIL")
    spec = importlib.util.spec_from_file_location("sites_page", PAGE)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_link_that_has_only_just_begun_does_not_know_how_much_waits(page: ModuleType) -> None:
    links = [
        {"time": 1.0, "lag_events": None},
        {"time": 2.0, "lag_events": 7},
        {"time": 3.0, "lag_events": None},
        {"time": 4.0, "lag_events": 0},
    ]
    assert page.waiting(links) == [(2.0, 7), (4.0, 0)]
