"""Two programs that need each other at every step: A writes to B, and B to A.

    python run.py DIRECTORY [--steps 200]

Starts a server and the halves of a rod, each a program. In the end both streams are read at once, and put
together they have to be what one program computes of the whole rod, bit for bit.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

import numpy as np
from rod import beginning, conducted

import thalweg
from thalweg import steps

HERE = Path(__file__).parent


def compared(driver: thalweg.Driver, count: int) -> bool:
    """Whether all steps are those of the whole rod."""
    left, right = (steps.open_run(driver, name) for name in ("left", "right"))
    if not left.numbers == right.numbers == list(range(count)):
        print(f"steps that are stored: {left.numbers} and {right.numbers}")
        return False
    rod = beginning()
    for number in range(count):
        halves = np.concatenate([stored.step(number)["rod"][...] for stored in (left, right)])
        if halves.tobytes() != rod.tobytes():
            print(f"step {number} differs from that of the whole rod")
            return False
        rod = conducted(rod, rod[0], rod[-1])
    print(f"{count} steps of two programs are those of one")
    return True


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("directory", type=Path)
    parser.add_argument("--steps", type=int, default=200)
    arguments = parser.parse_args()
    arguments.directory.mkdir(parents=True, exist_ok=True)
    group_file = arguments.directory / "thalweg.json"
    command = [thalweg.executable(), "serve", str(arguments.directory / "data")]
    server = subprocess.Popen([*command, "--group-file", str(group_file)])
    program = [sys.executable, str(HERE / "rod.py"), str(group_file)]
    halves = [subprocess.Popen([*program, side, str(arguments.steps)]) for side in ("left", "right")]
    try:
        # Each waits with a deadline, so this does too.
        if any([half.wait() for half in halves]):
            return 1
        with thalweg.Driver(group_file, connect_timeout=60) as driver:
            return 0 if compared(driver, arguments.steps) else 1
    finally:
        for half in halves:
            half.kill()
            half.wait()
        server.terminate()
        server.wait(60)


if __name__ == "__main__":
    sys.exit(main())
