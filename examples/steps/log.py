"""What a program has done: a line of JSON for each step, which a kill cannot take back."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any, Self


class Log:
    """A file of lines; a program that comes back goes on in it."""

    def __init__(self, path: Path) -> None:
        self.file = path.open("a")

    def write(self, step: int, **facts: Any) -> None:
        self.file.write(json.dumps({"time": time.time(), "step": step, **facts}) + "\n")
        self.file.flush()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.file.close()


def lines(path: Path) -> list[dict[str, Any]]:
    """What was logged. A line that a kill has cut is none."""
    whole = (line for line in path.read_text().splitlines(keepends=True) if line.endswith("\n"))
    return [json.loads(line) for line in whole]
