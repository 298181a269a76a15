"""What `pip install .` puts into an environment."""

import importlib.metadata

import thalweg


def test_the_module_is_of_the_installed_version() -> None:
    assert thalweg.__version__ == importlib.metadata.version("thalweg")
