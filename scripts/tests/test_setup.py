"""scripts/setup on machines that lack something.

Each test makes a machine of its own: a directory that is the whole PATH, with
the few real commands that the script needs and stand-ins for those that it
looks for. The script runs in a copy of the repository that has nothing but what
it reads.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
REAL = ("bash", "basename", "cat", "cmp", "cp", "dirname", "env", "head", "rm", "sed", "sort", "touch")


class Machine:
    """A machine with everything that setup wants, until something is taken."""

    def __init__(self, directory: Path) -> None:
        self.repository = directory / "repository"
        self.home = directory / "home"
        self.bin = directory / "bin"
        self.asked = directory / "asked-of-apt"
        for path in (self.repository / "scripts", self.home, self.bin):
            path.mkdir(parents=True)
        for name in ("environment", "setup"):
            shutil.copy2(ROOT / "scripts" / name, self.repository / "scripts")
        for name in ("Cargo.toml", "pyproject.toml"):
            shutil.copy2(ROOT / name, self.repository)
        # Without requirements no package registry is asked.
        (self.repository / "scripts" / "requirements-test.txt").touch()
        for name in REAL:
            real = shutil.which(name)
            assert real is not None
            (self.bin / name).symlink_to(real)
        for name in ("cc", "c++", "cmake", "make", "pkg-config", "redis-server", "mpicc", "mpiexec",
                     "chromium", "ip", "tc", "nft", "go"):
            self.tool(name, "true")
        self.tool("cargo", "echo cargo 1.99.0")
        self.tool("rustc", "echo rustc 1.99.0")
        self.tool("python3", f'exec {sys.executable} "$@"')
        self.tool("apt-get", f'echo "$@" >> {self.asked}')
        self.user(1000)

    def tool(self, name: str, script: str) -> None:
        """Puts a command there that does what a line of shell says."""
        path = self.bin / name
        path.write_text(f"#!{self.bin}/bash\n{script}\n")
        path.chmod(0o755)

    def user(self, number: int) -> None:
        self.tool("id", f"echo {number}")

    def lacks(self, name: str) -> None:
        (self.bin / name).unlink()

    def setup(self) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [self.bin / "bash", self.repository / "scripts" / "setup", "test"],
            env={"PATH": str(self.bin), "HOME": str(self.home)},
            cwd=self.home,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_a_complete_machine_gets_an_environment_once(machine: Machine) -> None:
    first = machine.setup()
    assert first.returncode == 0, first.stdout
    assert "making" in first.stdout
    assert os.access(machine.repository / ".venv" / "bin" / "pip", os.X_OK)
    second = machine.setup()
    assert (second.returncode, second.stdout) == (0, "")
    assert not machine.asked.exists()


def test_an_ordinary_user_is_told_what_is_missing_and_what_to_ask_for(machine: Machine) -> None:
    machine.lacks("cc")
    result = machine.setup()
    assert result.returncode == 1
    assert "a C compiler" in result.stdout
    assert "apt-get install -y --no-install-recommends gcc libc6-dev\n" in result.stdout
    assert not machine.asked.exists(), "an ordinary user installs nothing"
    assert not (machine.repository / ".venv").exists()


def test_what_is_optional_stops_nobody(machine: Machine) -> None:
    machine.lacks("mpicc")
    result = machine.setup()
    assert result.returncode == 0, result.stdout
    assert "optional: MPI, without which its example is skipped (mpich libmpich-dev)" in result.stdout
    assert not machine.asked.exists()
    machine.lacks("chromium")
    both = machine.setup()
    assert both.returncode == 0, both.stdout
    assert "MPI, without which its example is skipped; a browser, " in both.stdout
    assert "(mpich libmpich-dev chromium)" in both.stdout


def test_root_gets_what_is_optional_too(machine: Machine) -> None:
    machine.user(0)
    machine.lacks("mpicc")
    machine.lacks("chromium")
    result = machine.setup()
    assert result.returncode == 0, result.stdout
    assert "mpich libmpich-dev chromium" in machine.asked.read_text()


def test_root_gets_what_is_missing(machine: Machine) -> None:
    machine.user(0)
    machine.lacks("cc")
    # What the stand-in for the package manager brings.
    cc = machine.bin / "cc"
    machine.tool("apt-get", f'echo "$@" >> {machine.asked}\n'
                            f'case "$1" in install) cp {machine.bin}/id {cc} ;; esac')
    result = machine.setup()
    assert result.returncode == 0, result.stdout
    assert "you are root, so they are installed now" in result.stdout
    update, install = machine.asked.read_text().splitlines()
    assert update.startswith("update")
    assert "gcc libc6-dev" in install


def test_root_is_told_if_the_packages_did_not_help(machine: Machine) -> None:
    machine.user(0)
    machine.lacks("cc")
    result = machine.setup()
    assert result.returncode == 1
    assert "installed, and yet this machine lacks" in result.stdout


def test_an_old_cargo_is_passed_over_for_the_one_in_the_home_directory(machine: Machine) -> None:
    machine.tool("cargo", "echo cargo 1.63.0")
    home = machine.home / ".cargo" / "bin"
    home.mkdir(parents=True)
    shutil.copy2(machine.bin / "rustc", home / "rustc")
    (home / "cargo").write_text(f"#!{machine.bin}/bash\necho cargo 1.99.0\n")
    (home / "cargo").chmod(0o755)
    chosen = subprocess.run(
        [machine.bin / "bash", "-c", '. scripts/environment; echo "$cargo"; command -v cargo'],
        env={"PATH": str(machine.bin), "HOME": str(machine.home)},
        cwd=machine.repository, stdout=subprocess.PIPE, text=True,
    )
    assert chosen.stdout.split() == [str(home / "cargo")] * 2


def test_a_cargo_whose_rustc_is_old_is_passed_over(machine: Machine) -> None:
    machine.tool("rustc", "echo rustc 1.63.0")
    chosen = subprocess.run(
        [machine.bin / "bash", "-c", '. scripts/environment; echo "$cargo"'],
        env={"PATH": str(machine.bin), "HOME": str(machine.home)},
        cwd=machine.repository, stdout=subprocess.PIPE, text=True,
    )
    assert chosen.stdout.strip() != str(machine.bin / "cargo")


def test_rustup_is_told_to_add_its_own_parts(machine: Machine) -> None:
    machine.user(0)
    home = machine.home / ".cargo" / "bin"
    home.mkdir(parents=True)
    for name in ("cargo", "rustc"):
        machine.lacks(name)
        # This one has no `fmt`.
        (home / name).write_text(f'#!{machine.bin}/bash\n[ "$1" = --version ] && echo {name} 1.99.0\n')
        (home / name).chmod(0o755)
    result = machine.setup()
    assert result.returncode == 1
    assert "rustup component add" in result.stdout
    assert not machine.asked.exists(), "Debian's packages would take the place of rustup's"


def test_a_broken_environment_is_made_anew(machine: Machine) -> None:
    assert machine.setup().returncode == 0
    (machine.repository / ".venv" / "bin" / "python").unlink()
    again = machine.setup()
    assert again.returncode == 0, again.stdout
    assert "making" in again.stdout
