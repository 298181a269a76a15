"""Runs the code of one page of the documentation, top to bottom.

    python run_page.py PAGE.md [TIMES]

TIMES above 1 runs the page's code so often, one after the other with fresh names, in the
same directory and beside what the page started the first time: a page can be followed
again on a server that it was followed on before.

Python blocks (```python) run one after the other in this interpreter, sharing
their names as in a notebook; shell blocks (```sh) run in bash. Both start in
the current directory, which should be an empty one. A comment on the line above
a block says what else to do with it:

    <!-- test: skip REASON -->             it is not run
    <!-- test: file NAME -->               it is written to that file instead
    <!-- test: background until FILE -->   a shell block that keeps running: what
                                           follows waits for FILE to be there; it
                                           gets SIGTERM at the end of the page and
                                           has to exit with status 0
    <!-- test: output -->                  a block of another language is what the
                                           block before it printed, exactly

The exit status is 0 if the whole page did what it says. Otherwise the last line
names the page and the line of the block that did not.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import signal
import subprocess
import sys
import time
import traceback
from dataclasses import dataclass
from pathlib import Path
from typing import Any

# Watchdogs against a hang, not measures of speed.
READY_SECONDS_MAX = 60
STOP_SECONDS_MAX = 60

LANGUAGES = ("python", "sh")
MARK = re.compile(r"^<!-- test: (\w+) ?(.*?) ?-->$")


class PageError(Exception):
    """The page is written in a way that this program does not understand, or
    does not do what it says."""


@dataclass
class Block:
    """One fenced block: what it says, where, and what to do with it."""

    language: str
    line: int
    text: str
    action: str
    argument: str


def blocks(page: str) -> list[Block]:
    """The blocks of a page that have something to do, in their order."""
    found = []
    lines = page.splitlines()
    index = 0
    while index < len(lines):
        fence = re.match(r"^( *)```(\w*)", lines[index])
        mark = MARK.match(lines[index].strip())
        if mark and not re.match(r"^ *```\w", "".join(lines[index + 1:index + 2])):
            raise PageError(f"line {index + 1}: a test comment stands right above a block")
        if fence is None:
            index += 1
            continue
        begin, indent, language = index + 1, len(fence[1]), fence[2]
        above = MARK.match(lines[index - 1].strip()) if index else None
        index = begin
        while index < len(lines) and lines[index].strip() != "```":
            index += 1
        text = "".join(f"{line[indent:]}\n" for line in lines[begin:index])
        index += 1
        action, argument = (above[1], above[2]) if above else ("run", "")
        if language in LANGUAGES or action != "run":
            block = Block(language, begin + 1, text, action, argument)
            _check(block)
            found.append(block)
    return found


def _check(block: Block) -> None:
    """Refuses an action that its block cannot have."""
    shape = {
        "run": block.language in LANGUAGES,
        "skip": bool(block.argument),
        "file": bool(block.argument),
        "background": block.language == "sh" and block.argument.startswith("until "),
        "output": block.language not in LANGUAGES,
    }
    if not shape.get(block.action, False):
        raise PageError(
            f"line {block.line}: a {block.language or 'plain'} block can't be "
            f"'{block.action} {block.argument}'"
        )


class Run:
    """The run of one page: its names, what it printed last, what it started."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.names: dict[str, Any] = {"__name__": "__main__"}
        self.printed = ""
        self.started: list[tuple[Block, subprocess.Popen[bytes]]] = []

    def through(self, blocks: list[Block]) -> str | None:
        """Does the blocks in their order: what is wrong with the first that fails."""
        self.names = {"__name__": "__main__"}
        try:
            for block in blocks:
                try:
                    self.do(block)
                except BaseException as error:
                    if not isinstance(error, PageError):
                        traceback.print_exc()
                    return f"line {block.line}: {type(error).__name__}: {error}"
            return None
        finally:
            # Whatever the page left open, such as a producer, is closed before the
            # server goes away, as it would be when a reader's interpreter ends.
            self.names.clear()

    def do(self, block: Block) -> None:
        if block.action == "file":
            Path(block.argument).write_text(block.text)
        elif block.action == "background":
            self.start(block, Path(block.argument.removeprefix("until ")))
        elif block.action == "output":
            if self.printed.strip() != block.text.strip():
                raise PageError(f"printed:\n{self.printed}instead of:\n{block.text}")
        elif block.action == "run" and block.language == "python":
            self.python(block)
        elif block.action == "run":
            self.shell(block)

    def python(self, block: Block) -> None:
        # The padding makes a traceback name the line of the page.
        code = compile("\n" * (block.line - 1) + block.text, self.path, "exec")
        capture = io.StringIO()
        try:
            with contextlib.redirect_stdout(capture):
                exec(code, self.names)
        finally:
            self.keep(capture.getvalue())

    def shell(self, block: Block) -> None:
        shell = subprocess.run(["bash", "-euc", block.text], stdin=subprocess.DEVNULL,
                               stdout=subprocess.PIPE, text=True)
        self.keep(shell.stdout)
        if shell.returncode != 0:
            raise PageError(f"exit status {shell.returncode}")

    def keep(self, printed: str) -> None:
        self.printed = printed
        sys.stdout.write(printed)

    def start(self, block: Block, ready: Path) -> None:
        process = subprocess.Popen(["bash", "-euc", block.text], stdin=subprocess.DEVNULL)
        self.started.append((block, process))
        deadline = time.monotonic() + READY_SECONDS_MAX
        while not ready.exists():
            if process.poll() is not None:
                raise PageError(f"ended with status {process.returncode} before {ready} was there")
            if time.monotonic() > deadline:
                raise PageError(f"{ready} was not there after {READY_SECONDS_MAX} s")
            time.sleep(0.01)

    def stop(self) -> None:
        """Ends what the page started, the last first."""
        complaints = []
        for block, process in reversed(self.started):
            process.send_signal(signal.SIGTERM)
            try:
                status = process.wait(STOP_SECONDS_MAX)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
                complaints.append(f"line {block.line}: still there after SIGTERM")
                continue
            if status != 0:
                complaints.append(f"line {block.line}: exit status {status} after SIGTERM")
        if complaints:
            raise PageError("; ".join(complaints))


def main() -> None:
    path = Path(sys.argv[1])
    times = int(sys.argv[2]) if len(sys.argv) > 2 else 1
    # `python`, `thalweg` and the like are those of this interpreter.
    os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    run = Run(path)
    failed = None
    try:
        found = blocks(path.read_text())
        again = [block for block in found if block.action != "background"]
        for number in range(times):
            failed = run.through(again if number else found)
            if failed:
                failed = f"time {number + 1} of {times}: {failed}" if times > 1 else failed
                break
    except PageError as error:
        failed = str(error)
    try:
        run.stop()
    except PageError as error:
        failed = failed or str(error)
    if failed:
        sys.exit(f"{path}: {failed}")


if __name__ == "__main__":
    main()
