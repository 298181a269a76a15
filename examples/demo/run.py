"""From instrument to picture: a server, three programs, and a kill in the middle.

    python run.py OUTPUT_DIRECTORY

starts a server with durable topics, then acquisition, reconstruction and
viewer as processes of their own; kills the server with SIGKILL half way,
starts it again, and lets the pipeline carry on. At the end `thalweg audit`
compares the producers' journals with what is stored, and a report is written.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from report import write_report

import thalweg

HERE = Path(__file__).parent
ROWS = "18,27,36,45"
WATCHDOG_S = 170
"""The whole run ends in an error after this long, whatever hangs."""


class Server:
    """`thalweg serve` on a data directory, as a process of its own."""

    def __init__(self, directory: Path, group_file: Path) -> None:
        self.command = [thalweg.executable(), "serve", str(directory), "--group-file", str(group_file)]
        self.start()

    def start(self) -> None:
        self.process = subprocess.Popen(self.command, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        # One line says that the server is ready.
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"the server ended with status {self.process.wait()}")
        print(f"server {self.process.pid}: {line.strip()}", flush=True)

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        print(
            f"server {self.process.pid}: killed in mid-run, on purpose; the next one has its data",
            flush=True,
        )

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait(timeout=30)


def program(name: str, group_file: Path, *arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, str(HERE / name), "--group-file", str(group_file), *arguments]
    return subprocess.Popen(command, text=True)


def stored_events(driver: thalweg.Driver, topic: str) -> int:
    return sum(partition.end for partition in driver.open_topic(topic).partitions)


def where() -> str:
    """When and on what this runs."""
    when = time.strftime("%Y-%m-%d %H:%M", time.gmtime(time.time()))
    return (f"{when} UTC; Thalweg {thalweg.__version__}, Python {platform.python_version()}; "
            f"{os.cpu_count()} processors ({platform.machine()}), Linux {platform.release()}; load {os.getloadavg()[0]:.1f} at the end.")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("output", type=Path)
    parser.add_argument("--angles", type=int, default=180)
    options = parser.parse_args()
    output = options.output.resolve()
    shutil.rmtree(output, ignore_errors=True)
    output.mkdir(parents=True)
    scratch = Path(tempfile.mkdtemp(prefix="thalweg-demo-"))
    signal.alarm(WATCHDOG_S)

    started = time.time()
    group_file = scratch / "thalweg.json"
    server = Server(scratch / "data", group_file)
    programs: list[subprocess.Popen[str]] = []
    try:
        with thalweg.Driver(group_file, connect_timeout=60) as driver:
            for name in ("projections", "slices"):
                driver.create_topic(name, partitions=1, storage="disk", durability="synced")
            journals = [output / "detector.journal", output / "reconstruction.journal"]
            programs = [
                program("acquisition.py", group_file, "--journal", str(journals[0]),
                        "--angles", str(options.angles)),
                program("reconstruction.py", group_file, "--journal", str(journals[1]), "--rows", ROWS),
                program("viewer.py", group_file, "--output", str(output),
                        "--slices", str(len(ROWS.split(",")))),
            ]
            while stored_events(driver, "projections") < options.angles // 2:
                if programs[0].poll() is not None:
                    raise RuntimeError("acquisition ended before half of its projections were stored")
                time.sleep(0.05)
            killed_at = stored_events(driver, "projections")
            server.kill()
            down = time.time()
            server.start()
            outage = time.time() - down
            for one in programs:
                if one.wait() != 0:
                    raise RuntimeError(f"{one.args[1]} ended with status {one.returncode}")
            elapsed = time.time() - started
            counts = {name: stored_events(driver, name) for name in ("projections", "slices")}
        audit = subprocess.run(
            [thalweg.executable(), "audit", "--json", "--group-file", str(group_file)]
            + [part for journal in journals for part in ("--journal", str(journal))],
            stdout=subprocess.PIPE, text=True,
        )
    finally:
        for one in programs:
            if one.poll() is None:
                one.kill()
        server.stop()
        shutil.rmtree(scratch, ignore_errors=True)
    facts = {
        "where": where(),
        "durability": "synced (survives a power loss)",
        "elapsed_s": round(elapsed, 1),
        "killed_at_projection": killed_at,
        "outage_s": round(outage, 2),
        "stored": counts,
        "audit_exit": audit.returncode,
        "audit": [json.loads(line) for line in audit.stdout.splitlines()],
        **json.loads((output / "viewer.json").read_text()),
    }
    (output / "facts.json").write_text(json.dumps(facts, indent=1))
    write_report(output, facts)
    print(f"report: {output / 'report.html'}")
    expected = options.angles + 1
    if audit.returncode != 0 or counts["projections"] != expected:
        sys.exit(f"demo: {counts['projections']} of {expected} events stored, audit says {audit.stdout}")
    print(f"nothing lost, nothing doubled: {options.angles} projections, the event that ends the scan, and "
          f"{counts['slices']} slices are stored exactly as acknowledged, across a SIGKILL at projection {killed_at}")


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    main()
