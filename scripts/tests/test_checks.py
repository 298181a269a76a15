"""The summary of `make test` names the tests that failed."""

import os
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

PROGRAM = """
set -uo pipefail
section() { printf '\\n== %s\\n' "$*"; }
. "$CHECKS"
passes() { echo fine; }
cargo_fails() {
    printf 'test a ... ok\\ntest b ... FAILED\\n\\nfailures:\\n\\n---- b stdout ----\\n'
    printf 'left: 1\\n\\nfailures:\\n    b\\n\\ntest result: FAILED. 1 passed\\n'
    return 101
}
pytest_fails() { echo 'FAILED test_c.py::test_d - assert 1 == 2' >&2; return 1; }
leaves_a_process() { sleep 600 & echo $! >> left; return 3; }
check "zeroth" true
check "first" passes
check "second" cargo_fails
check "third, of Python" pytest_fails
check "fourth" leaves_a_process
check "fifth" sh -c 'echo error: of another program; exit 4'
check "sixth" leaves_a_process
echo "status of the last: $?"
check "seventh" sh -c 'echo "  no space left"; exit 1'
summary
"""


def test_the_summary_names_each_test_that_failed_and_waits_for_no_process_that_is_left(
    tmp_path: Path,
) -> None:
    done = subprocess.run(
        ["bash", "-c", PROGRAM],
        cwd=tmp_path,
        env={**os.environ, "CHECKS": str(ROOT / "scripts" / "checks")},
        stdout=(tmp_path / "out").open("w"),
        stderr=subprocess.STDOUT,
        check=False,
    )
    for left in (tmp_path / "left").read_text().split():
        os.kill(int(left), 9)
    printed = (tmp_path / "out").read_text()
    assert done.returncode == 1
    assert "status of the last: 3" in printed
    summary = printed[printed.index("== summary") :]
    assert "FAILED: second (all of it: build/checks/second.log)" in summary
    assert "---- b stdout ----\nleft: 1" in summary
    assert "FAILED test_c.py::test_d - assert 1 == 2" in summary
    assert "error: of another program" in summary
    assert "  no space left" in summary
    assert "fine" not in summary
    assert summary.rstrip().endswith("checks: 2 passed, 6 failed")
