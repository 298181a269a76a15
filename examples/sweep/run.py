"""A parameter sweep whose workers are killed at random, and loses nothing.

    python run.py DIRECTORY [--sets 500] [--workers 4] [--kills 8] [--seed 1]

Parameter sets are events of the topic `sets`; workers share them by a queue and
push what they compute to the topic `results`. While they work, some are killed
as a crash does, after a number of results that the seed says, and started
again. At the end every set has a result, or is a dead letter that says why.
"""

from __future__ import annotations

import argparse
import random
import subprocess
import sys
from pathlib import Path

import thalweg

WORKER = Path(__file__).with_name("worker.py")
#: One set in so many can't be computed.
BAD_EVERY = 50


def start_worker(group_file: Path) -> subprocess.Popen[bytes]:
    # Longer than a killed one's session: whoever is left does its set.
    return subprocess.Popen([sys.executable, str(WORKER), str(group_file), "5"])


def sweep(driver: thalweg.Driver, group_file: Path, arguments: argparse.Namespace) -> bool:
    chance = random.Random(arguments.seed)
    sets, results = driver.create_topic("sets"), driver.create_topic("results")
    # Whoever is first makes the queue, with its options and its topic of dead letters.
    sets.queue("sweep", deliveries_max=50).close()
    numbers = range(arguments.sets)
    bad = {number for number in numbers if number % BAD_EVERY == BAD_EVERY - 1}
    with sets.producer() as producer:
        producer.push_many(
            [{"number": n, "coupling": -1.0 if n in bad else n / 10} for n in numbers]
        )
    good = arguments.sets - len(bad)
    kill_at = sorted(chance.randrange(good) for _ in range(arguments.kills))
    workers = [start_worker(group_file) for _ in range(arguments.workers)]
    found: dict[int, int] = {}
    killed = 0
    try:
        with results.consumer("gather") as consumer:
            while len(found) < good:
                event = consumer.pull(timeout=120)
                if event is None:
                    print(f"{len(found)} of {good} results came")
                    return False
                number = event.metadata["number"]
                found[number] = found.get(number, 0) + 1
                while killed < len(kill_at) and len(found) > kill_at[killed]:
                    victim = chance.randrange(len(workers))
                    workers[victim].kill()
                    workers[victim].wait()
                    workers[victim] = start_worker(group_file)
                    killed += 1
        dead: set[int] = set()
        with driver.open_topic("sets.dead").consumer("gather") as consumer:
            while dead != bad:
                event = consumer.pull(timeout=120)
                if event is None:
                    break
                dead.add(event.metadata["number"])
                reason = dict(event.headers)["thalweg.reason"].decode()
                print(f"set {event.metadata['number']} is dead: {reason}")
        ended = [worker.wait(120) for worker in workers]
    finally:
        for worker in workers:
            worker.kill()
            worker.wait()
    print(f"{killed} workers killed, seed {arguments.seed}")
    again = sum(found.values()) - len(found)
    print(f"{len(found)} sets have results; {again} results came again")
    missing = set(numbers) - found.keys() - dead
    print(f"{len(missing)} sets have none")
    return not missing and dead == bad and not any(ended) and killed == arguments.kills


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("directory", type=Path)
    parser.add_argument("--sets", type=int, default=500)
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--kills", type=int, default=8)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    arguments.directory.mkdir(parents=True, exist_ok=True)
    group_file = arguments.directory / "thalweg.json"
    command = [thalweg.executable(), "serve", str(arguments.directory / "data")]
    server = subprocess.Popen([*command, "--group-file", str(group_file)])
    try:
        with thalweg.Driver(group_file, connect_timeout=60) as driver:
            return 0 if sweep(driver, group_file, arguments) else 1
    finally:
        server.terminate()
        server.wait(60)


if __name__ == "__main__":
    sys.exit(main())
