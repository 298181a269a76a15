"""Refuses to stand in the way of the programs' own libraries where they are there."""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path

__all__ = ["refuse"]

#: Set to 1, what is installed besides is not looked at.
ENVIRONMENT = "THALWEG_MOFKA_ALLOW_SHADOWING"


def refuse(module: str, natives: tuple[str, ...], ours: str) -> None:
    """Raises `ImportError` if another installation of `module` could be meant.

    `natives` are the extension modules that only a real installation has; `ours`
    is the file of our own module. Another package of the same name elsewhere on
    `sys.path` counts as well.
    """
    if os.environ.get(ENVIRONMENT) == "1":
        return
    found = [name for name in natives if name in sys.modules or importlib.util.find_spec(name)]
    found += [str(path) for path in _elsewhere(module, Path(ours).resolve())]
    if found:
        raise ImportError(
            f"{module} of thalweg-mofka would hide a real installation ({', '.join(found)}). "
            f"Uninstall one of the two (pip uninstall thalweg-mofka), or use separate environments; "
            f"{ENVIRONMENT}=1 takes thalweg-mofka's all the same.",
            name=module,
        )


def _elsewhere(module: str, ours: Path) -> list[Path]:
    """Packages of that name on `sys.path` that are not ours."""
    found = []
    for entry in dict.fromkeys(sys.path):
        place = Path(entry or os.curdir).joinpath(*module.split("."))
        if place.resolve() != ours.parent and any(place.glob("*.py")):
            found.append(place)
    return found
