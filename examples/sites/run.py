"""Two sites and a line that fails: what the instrument of A writes is at B, once each, in order.

    python run.py OUTPUT_DIRECTORY [--seconds 50] [--long-cut SECONDS]

Site A has an instrument and a server beside it; site B has a server at port 443, and a viewer. Between them a mirror copies the frames,
and a tunnel lets a program of A use the server of B. The line is cut for 1 s and for 10 s (and once more with `--long-cut`); the
server of A, the server of B and the link are killed and started again. Afterwards every frame has to be at B, the same bytes under
the same offset. A page with pictures tells of it.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import platform
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from page import write_report
from places import Loopback, Namespaces, places

import thalweg

HERE = Path(__file__).parent
WATCHDOG_S = 240
"""The whole run ends in an error after this long (and the long cut), whatever hangs."""


class Failed(Exception):
    """The demo has found what must not be."""


class Programs:
    """The processes of both sites."""

    def __init__(self, sites: Namespaces | Loopback, scratch: Path) -> None:
        self.sites, self.scratch = sites, scratch
        self.running: dict[str, subprocess.Popen[str]] = {}
        self.commands: dict[str, list[str]] = {}
        self.links: list[dict[str, Any]] = []
        self._readers: list[threading.Thread] = []

    def start(self, name: str, site: str, *command: object) -> subprocess.Popen[str]:
        self.commands[name] = self.sites.inside(site, *map(str, command))
        return self.start_again(name)

    def start_again(self, name: str) -> subprocess.Popen[str]:
        with (self.scratch / f"{name}.errors").open("a") as errors:
            process = subprocess.Popen(self.commands[name], stdout=subprocess.PIPE, stderr=errors, text=True)
        self.running[name] = process
        return process

    def kill(self, name: str) -> None:
        self.running[name].kill()
        self.running[name].wait()

    def follow_link(self) -> None:
        """Notes what the link reports, until it ends."""
        out = self.running["link"].stdout
        assert out is not None

        def follow() -> None:
            for line in out:
                self.links.append({"time": time.time(), **json.loads(line)})

        self._readers.append(threading.Thread(target=follow, daemon=True))
        self._readers[-1].start()

    def until(self, what: Callable[[], bool], why: str) -> None:
        while not what():
            for name, process in self.running.items():
                if process.poll():
                    errors = (self.scratch / f"{name}.errors").read_text()
                    raise Failed(f"{name} ended with status {process.returncode} ({why}): {errors}")
            time.sleep(0.05)

    def wait(self, name: str) -> None:
        self.until(lambda: self.running[name].poll() is not None, f"waiting for {name}")

    def interrupt(self, name: str) -> None:
        self.running[name].send_signal(signal.SIGINT)
        self.wait(name)

    def end(self) -> None:
        for process in self.running.values():
            if process.poll() is None:
                process.kill()
                process.wait()


def token(programs: Programs, name: str, verbs: str, topic: str) -> Path:
    """A token of the server of site B."""
    path = programs.scratch / name
    command = [thalweg.executable(), "token", "new", "--can", verbs, "--topics", topic, "--for", "1h"]
    command += ["--directory", str(programs.scratch / "b"), "--output", str(path)]
    subprocess.run(command, check=True, capture_output=True)
    return path


def make_tunnel(programs: Programs) -> str:
    """An address of site A that leads to the server of site B."""
    sites, executable = programs.sites, thalweg.executable()
    name = sites.relay_from_a()
    command = [executable, "relay", "offer", f"server={sites.listen_inside()}", "--listen", sites.relay_listen()]
    offer = programs.start("offer", "b", *command, "--name", name, "--for", "1h")
    assert offer.stdout is not None
    code = offer.stdout.readline().removeprefix("thalweg relay join ").strip()
    join = programs.start("join", "a", executable, "relay", "join", code)
    assert join.stdout is not None
    return join.stdout.readline().rpartition(" at ")[2].strip()


def happenings(programs: Programs, options: argparse.Namespace) -> list[dict[str, Any]]:
    """Cuts and kills, while the instrument is at work. What happened when."""
    happened: list[dict[str, Any]] = []
    began = time.time()

    def at(second: float) -> None:
        programs.until(lambda: time.time() - began >= second * options.seconds / 50, "at work")

    def cut(seconds: float) -> None:
        print(f"{time.time() - began:5.1f} s: the line is cut for {seconds:g} s", flush=True)
        start = time.time()
        programs.sites.cut()
        programs.until(lambda: time.time() - start >= seconds, "cut")
        programs.sites.mend()
        happened.append({"what": "cut", "time": start, "seconds": seconds})

    def kill(name: str, what: str) -> None:
        print(f"{time.time() - began:5.1f} s: {what} is killed and started again", flush=True)
        happened.append({"what": what, "time": time.time()})
        programs.kill(name)
        programs.start_again(name)

    at(6)
    cut(1)
    at(12)
    cut(10)
    at(30)
    kill("a", "the server of A")
    at(36)
    kill("b", "the server of B")
    at(42)
    kill("link", "the link")
    programs.follow_link()
    if options.long_cut:
        cut(options.long_cut)
    return happened


def contents(group_file: Path) -> list[tuple[int, int, str]]:
    """Offset, number and SHA-256 of each frame of a server."""
    found = []
    with thalweg.Driver(group_file, connect_timeout=60) as driver, driver.open_topic("frames").read() as reader:
        for event in reader:
            found.append((event.id.offset, event.metadata["n"], hashlib.sha256(event.data).hexdigest()))
    return found


def check(programs: Programs, a: Path, b: Path, count: int, seen: list[dict[str, Any]]) -> str:
    """Everything is at B, the same as at A. Gives the hash of it all."""
    has, copy = contents(a), contents(b)
    if [number for _, number, _ in has] != list(range(count)):
        raise Failed("the server of A has not every frame once, in order")
    if copy != has:
        raise Failed("the copy differs")
    if [line["n"] for line in seen] != list(range(count)):
        raise Failed("the viewer has not seen every frame once, in order")
    with thalweg.Driver(b, connect_timeout=60) as driver, driver.open_topic("motors").read() as reader:
        stored = [event.metadata["n"] for event in reader]
    if stored != list(range(len(stored))) or len(stored) < len(lines(programs.scratch / "motor.log")):
        raise Failed("the server of B has not every position that it acknowledged, once, in order")
    return hashlib.sha256(repr(has).encode()).hexdigest()


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def where(sites: Namespaces | Loopback) -> str:
    """When and on what this runs."""
    when = time.strftime("%Y-%m-%d %H:%M", time.gmtime(time.time()))
    return (
        f"{when} UTC; {sites.about}; Thalweg {thalweg.__version__}, Python {platform.python_version()}; {os.cpu_count()} processors "
        f"({platform.machine()}), Linux {platform.release()}; load {os.getloadavg()[0]:.1f} at the end."
    )


def demo(programs: Programs, options: argparse.Namespace) -> dict[str, Any]:
    scratch, sites = programs.scratch, programs.sites
    executable, python = thalweg.executable(), sys.executable
    a, b = scratch / "a.json", scratch / "b.json"
    programs.start("a", "a", executable, "serve", scratch / "a", "--group-file", a)
    listen = ["--listen", sites.listen(), "--listen", f"tcp://{sites.listen_inside()}"]
    programs.start("b", "b", executable, "serve", scratch / "b", "--group-file", b, *listen)
    with thalweg.Driver(a, connect_timeout=60) as driver:
        driver.create_topic("frames")
    with thalweg.Driver(b, connect_timeout=60) as driver:
        driver.create_topic("motors")
    link_token = token(programs, "link.token", "read,write,manage", "frames")
    motor_token = token(programs, "motor.token", "read,write", "motors")
    address = make_tunnel(programs)
    count = int(options.seconds * 50)

    command = [executable, "relay", "mirror", "--json", "--every", "0.2", "--from", a, "--to", sites.server_from_a(b)]
    programs.start("link", "a", *command, "--to-credential", link_token, "--name", "b", "frames")
    programs.follow_link()
    programs.start("viewer", "b", python, HERE / "viewer.py", b, scratch, count)
    began = time.time()
    programs.start("instrument", "a", python, HERE / "instrument.py", a, scratch / "instrument.log", "--seconds", options.seconds)
    programs.start("motor", "a", python, HERE / "motor.py", f"tcp://{address}", motor_token, scratch / "motor.log", options.seconds)
    happened = happenings(programs, options)
    for name in ("instrument", "motor"):
        programs.wait(name)
    written = time.time()
    programs.wait("viewer")
    ended = time.time()
    programs.until(lambda: programs.links[-1]["lag_events"] == 0, "the last of the link")
    for name in ("link", "join"):
        programs.interrupt(name)
    seen = lines(scratch / "viewer.log")
    return {
        "where": where(sites),
        "frames": count,
        "frame_bytes": 2 * 256 * 256,
        "began": began,
        "written_s": round(written - began, 1),
        "behind_s": round(ended - written, 2),
        "happened": happened,
        "sha256": check(programs, a, b, count, seen),
        "link": programs.links,
        "viewer": seen,
        "instrument": lines(scratch / "instrument.log"),
        "motor": lines(scratch / "motor.log"),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("output", type=Path)
    parser.add_argument("--seconds", type=float, default=50, help="that the instrument is at work")
    parser.add_argument("--long-cut", type=float, default=0, metavar="SECONDS", help="one more cut, so long")
    options = parser.parse_args()
    if options.seconds < 50:
        parser.error("--seconds is from 50")
    output = options.output.resolve()
    shutil.rmtree(output, ignore_errors=True)
    output.mkdir(parents=True)
    scratch = Path(tempfile.mkdtemp(prefix="thalweg-sites-"))
    signal.alarm(int(WATCHDOG_S + options.seconds + options.long_cut))
    try:
        with places() as sites:
            programs = Programs(sites, scratch)
            try:
                facts = demo(programs, options)
            finally:
                programs.end()
        write_report(output, facts, scratch / "frames.npy")
    except Failed as reason:
        sys.exit(f"demo: {reason}")
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    small = {key: value for key, value in facts.items() if key not in ("link", "viewer", "instrument", "motor")}
    (output / "facts.json").write_text(json.dumps(small, indent=1))
    print(f"report: {output / 'report.html'}")
    print(f"the same, byte for byte, once each, in order: {facts['frames']} frames at both sites, {facts['behind_s']} s behind the last one")


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    main()
