"""The code of the guide, of how-to and operations pages, of a program's page and of the README runs as it stands there.

`run_page.py` says what a page may contain. Every page gets an interpreter, an
empty directory and, if it starts one, a server of its own.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import thalweg

ROOT = Path(__file__).resolve().parents[2]
RUN_PAGE = Path(__file__).with_name("run_page.py")
PAGES = [
    ROOT / "README.md",
    *sorted((ROOT / "docs" / "guide").glob("*.md")),
    *sorted((ROOT / "docs" / "how-to").glob("*.md")),
    *sorted((ROOT / "docs" / "operations").glob("*.md")),
    ROOT / "docs" / "programs" / "tomography.md",
]

# A watchdog against a hang, not a measure of speed.
PAGE_SECONDS_MAX = 300


def run_page(page: Path, directory: Path, times: int = 1) -> tuple[int, str]:
    """Runs a page so many times in a directory: its exit status and what it printed."""
    process = subprocess.Popen(
        [sys.executable, RUN_PAGE, page, str(times)],
        cwd=directory,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        # A group of its own, so that a page that hangs leaves no server behind.
        start_new_session=True,
    )
    try:
        printed, _ = process.communicate(timeout=PAGE_SECONDS_MAX)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        printed, _ = process.communicate()
        pytest.fail(f"{page} did not end within {PAGE_SECONDS_MAX} s; it printed:\n{printed}")
    return process.returncode, printed


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
@pytest.mark.skipif(not hasattr(thalweg, "Driver"), reason="the package has no Driver yet")
def test_page(page: Path, tmp_path: Path) -> None:
    status, printed = run_page(page, tmp_path)
    assert status == 0, printed


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
@pytest.mark.skipif(not hasattr(thalweg, "Driver"), reason="the package has no Driver yet")
def test_page_followed_twice_on_one_server(page: Path, tmp_path: Path) -> None:
    status, printed = run_page(page, tmp_path, times=2)
    assert status == 0, printed


def run_text(directory: Path, text: str, times: int = 1) -> tuple[int, str]:
    page = directory / "page.md"
    page.write_text(text)
    return run_page(page, directory, times)


def test_a_page_that_can_be_followed_only_once_fails_the_second_time(tmp_path: Path) -> None:
    text = "```python\nopen('made', 'x').close()\n```\n"
    status, printed = run_text(tmp_path, text, times=2)
    assert status == 1, printed
    assert "page.md: time 2 of 2: line 2: FileExistsError" in printed


def test_blocks_share_their_names_and_do_what_their_comments_say(tmp_path: Path) -> None:
    status, printed = run_text(tmp_path, """
# A page

```python
here = 41
```

<!-- test: skip it takes a machine that few have -->
```python
raise SystemExit("not run")
```

<!-- test: file add.py -->
```python
print(1 + 1)
```

```sh
python add.py
```

<!-- test: output -->
```text
2
```

<!-- test: background until ready -->
```sh
trap 'exit 0' TERM
touch ready
while true; do sleep 0.01; done
```

- in a list:

  ```python
  print(here + 1)
  ```

  <!-- test: output -->
  ```text
  42
  ```
""")
    assert status == 0, printed


@pytest.mark.parametrize(
    ("text", "line", "said"),
    [
        ("```python\n\n1 / 0\n```\n", 2, "ZeroDivisionError"),
        ("```python\nraise SystemExit(0)\n```\n", 2, "SystemExit"),
        ("```sh\nfalse\ntrue\n```\n", 2, "exit status 1"),
        ("```sh\necho 2\n```\n<!-- test: output -->\n```text\n3\n```\n", 6, "printed:\n2"),
        ("<!-- test: background until ready -->\n```sh\nexit 3\n```\n", 3, "ended with status 3"),
        ("<!-- test: background until ready -->\n```sh\ntouch ready; exec sleep 60\n```\n", 3,
         "after SIGTERM"),
        ("<!-- test: skip -->\n```sh\ntrue\n```\n", 3, "can't be 'skip '"),
        ("<!-- test: dance -->\n```sh\ntrue\n```\n", 3, "can't be 'dance '"),
        ("<!-- test: output -->\n\n```text\n1\n```\n", 1, "right above a block"),
    ],
)
def test_a_page_that_does_not_do_what_it_says_fails(
    tmp_path: Path, text: str, line: int, said: str
) -> None:
    status, printed = run_text(tmp_path, text)
    assert status == 1, printed
    assert f"page.md: line {line}: " in printed
    assert said in printed


def test_a_traceback_names_the_line_of_the_page(tmp_path: Path) -> None:
    _, printed = run_text(tmp_path, "text\n\n```python\n\n1 / 0\n```\n")
    assert 'page.md", line 5' in printed
