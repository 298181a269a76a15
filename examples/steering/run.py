"""A steering loop: simulations ask a controller at every step, which is killed on the way.

    python run.py DIRECTORY [--simulations 3] [--steps 300] [--kills 1]

Simulations send requests to the topic `steering`, with their state as data. The
controller is a member of a queue of that topic; when it is killed, whatever it
had is answered by the one that is started then. In the end a broadcast to the
topic `orders` gathers the report of each simulation, and the histogram of all
round trips is printed.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

import thalweg

HERE = Path(__file__).parent
TARGET = 80.0


def start(program: str, *arguments: object) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, str(HERE / program), *map(str, arguments)])


def histogram(seconds: list[float]) -> list[str]:
    """A line for each power of two of microseconds, from the first to the last used."""
    slots = [max(int(time * 1e6), 1).bit_length() for time in seconds]
    most = max(map(slots.count, slots))
    lines = []
    for slot in range(min(slots), max(slots) + 1):
        count = slots.count(slot)
        bar = "#" * -(-count * 40 // most)
        lines.append(f"{1 << (slot - 1):>9} to {1 << slot:>9} µs {count:>6} {bar}")
    return lines


def run(driver: thalweg.Driver, group_file: Path, arguments: argparse.Namespace) -> bool:
    steering, orders = driver.create_topic("steering"), driver.create_topic("orders")
    names = [f"rod-{number}" for number in range(arguments.simulations)]
    total = arguments.simulations * arguments.steps
    kill_at = [total * (number + 1) // (arguments.kills + 1) for number in range(arguments.kills)]
    controller = start("controller.py", group_file, TARGET)
    simulations = [start("simulation.py", group_file, name, arguments.steps) for name in names]
    killed = asked = 0
    try:
        # Requests are events: whoever likes can look on.
        with steering.consumer("watch") as watch, orders.requester() as requester:
            while asked < total:
                if watch.pull(timeout=120) is None:
                    print(f"{asked} of {total} requests came")
                    return False
                asked += 1
                if asked in kill_at:
                    controller.kill()
                    controller.wait()
                    controller = start("controller.py", group_file, TARGET)
                    killed += 1
            gathered = requester.broadcast({"report": True}, timeout=120).result()
        ended = [simulation.wait(120) for simulation in simulations]
    finally:
        for process in (controller, *simulations):
            process.kill()
            process.wait()
    reports = sorted(gathered.replies.values(), key=lambda reply: reply.metadata["simulation"])
    round_trips: list[float] = []
    reached = True
    for reply in reports:
        report = reply.metadata
        reached &= abs(report["coldest"] - report["hottest"]) < 0.01
        reached &= abs(report["coldest"] - reports[0].metadata["coldest"]) < 0.01
        print(f"{report['simulation']}: {report['coldest']:.1f} to {report['hottest']:.1f} degrees")
        round_trips += reply.data.cast("d").tolist()
    print(f"controllers killed: {killed}; simulations missing: {len(gathered.missing)}")
    print(f"{len(round_trips)} round trips")
    print("\n".join(histogram(round_trips)))
    complete = len(round_trips) == total and not gathered.missing and not any(ended)
    return complete and reached and killed == arguments.kills


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("directory", type=Path)
    parser.add_argument("--simulations", type=int, default=3)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--kills", type=int, default=1)
    arguments = parser.parse_args()
    arguments.directory.mkdir(parents=True, exist_ok=True)
    group_file = arguments.directory / "thalweg.json"
    command = [thalweg.executable(), "serve", str(arguments.directory / "data")]
    server = subprocess.Popen([*command, "--group-file", str(group_file)])
    try:
        with thalweg.Driver(group_file, connect_timeout=60) as driver:
            return 0 if run(driver, group_file, arguments) else 1
    finally:
        server.terminate()
        server.wait(60)


if __name__ == "__main__":
    sys.exit(main())
