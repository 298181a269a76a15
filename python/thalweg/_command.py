"""Where the `thalweg` command is that came with this package."""

from __future__ import annotations

import shutil
import sys
import sysconfig
from pathlib import Path

from thalweg.exceptions import Error


def executable() -> str:
    """The path of the ``thalweg`` command: to start a server, for example.

    It is the one of this Python's environment, or else the first on ``PATH``.

    Raises:
        Error: there is none.
    """
    beside = [Path(sysconfig.get_path("scripts")), Path(sys.executable).parent]
    for directory in beside:
        if (directory / "thalweg").is_file():
            return str(directory / "thalweg")
    found = shutil.which("thalweg")
    if found is None:
        raise Error(f"there is no thalweg command in {beside[0]} nor on PATH")
    return found
