"""What `pip install .` puts into an environment."""

import importlib.metadata
from pathlib import Path

import thalweg

SCRIPTS = Path(__file__).resolve().parents[2] / "scripts"


def pins(purpose: str) -> dict[str, str]:
    """The versions that a requirements file fixes, by package."""
    lines = (SCRIPTS / f"requirements-{purpose}.txt").read_text().splitlines()
    fixed = [line.split("==") for line in lines if not line.startswith("#")]
    return {name: version for name, version in fixed}


def test_the_module_is_of_the_installed_version() -> None:
    assert thalweg.__version__ == importlib.metadata.version("thalweg")


def test_tests_and_demo_share_one_environment() -> None:
    test, demo = pins("test"), pins("demo")
    assert {name: (test[name], demo[name]) for name in test.keys() & demo.keys()
            if test[name] != demo[name]} == {}
