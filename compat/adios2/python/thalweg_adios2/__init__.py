"""ADIOS2's engine SST on Thalweg, for programs in Python.

With `THALWEG_ADIOS2=1` in the environment the engine is loaded when a program imports `adios2`, whose
SST it becomes where a Thalweg server is named, by `THALWEG_GROUP_FILE` or the parameter `GroupFile`.
`load()` does it by hand, after `import adios2`.
"""

from __future__ import annotations

import ctypes
import importlib.machinery
import importlib.metadata
import os
import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from pathlib import Path
from types import ModuleType

__all__ = ["library", "load", "on_import"]

#: The module of ADIOS2 with whose import its core library is loaded.
_BINDINGS = "adios2.bindings"


def library(version: str) -> Path:
    """The engine for a version of ADIOS2, such as "2.12.1": `THALWEG_ADIOS2_LIBRARY` in the environment,
    or the one in this package. Raises `FileNotFoundError` if there is none for it."""
    named = os.environ.get("THALWEG_ADIOS2_LIBRARY")
    if named:
        return Path(named)
    minor = ".".join(version.split(".")[:2])
    found = Path(__file__).parent / "lib" / f"libthalweg_adios2-{minor}.so"
    if not found.exists():
        have = sorted(path.stem.rpartition("-")[2] for path in found.parent.glob("*.so"))
        raise FileNotFoundError(f"no engine for ADIOS2 {minor}; there is one for {', '.join(have) or 'none'}")
    return found


def load() -> bool:
    """Loads the engine into this process, in which ADIOS2 is imported. Whether that was done: if not, why
    is said in one line on standard error, and SST stays as it is."""
    try:
        ctypes.CDLL(str(library(importlib.metadata.version("adios2"))))
    except (OSError, importlib.metadata.PackageNotFoundError) as error:
        print(f"thalweg: SST stays as it is: {error}", file=sys.stderr)
        return False
    return True


class _Then(Loader):
    """Loads a module as another loader does, and the engine after it."""

    def __init__(self, loader: Loader) -> None:
        self._loader = loader

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        self._loader.exec_module(module)
        load()


class _Finder(MetaPathFinder):
    """Finds ADIOS2's bindings, once."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname != _BINDINGS:
            return None
        sys.meta_path.remove(self)
        spec = importlib.machinery.PathFinder.find_spec(fullname, path, target)
        if spec is not None and spec.loader is not None:
            spec.loader = _Then(spec.loader)
        return spec


def on_import() -> None:
    """Has the engine loaded as soon as `adios2` is imported."""
    if _BINDINGS in sys.modules:
        load()
    else:
        sys.meta_path.insert(0, _Finder())
