"""The published streaming experiments: Thalweg natively and by AMQP, and RabbitMQ, over each architecture.

Every contender has the same experiment, the same clients and the same command, `thalweg workload run`; each has a server of
its own that is new. The raw results of all runs go to a file of JSON, of which `tables.py` makes tables and plots.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "compat" / "amqp"))

import suites  # noqa: E402

EXPERIMENTS = [
    "dstream-sharing",
    "lstream-sharing",
    "dstream-feedback",
    "lstream-feedback",
    "generic-broadcast",
    "generic-gather",
]
ARCHITECTURES = ["direct", "proxied:relay", "proxied:haproxy", "managed:gateway", "managed:haproxy"]
CONTENDERS = ["RabbitMQ", "Thalweg, AMQP", "Thalweg"]
# What is kept of a result.
KEPT = [
    "architecture",
    "consumers",
    "producers",
    "repetition",
    "wall",
    "sum_of_windows",
    "received",
    "replies",
    "unanswered",
    "rtt",
    "cpu_seconds_per_gigabyte",
]
# Seconds that one command may take.
LONGEST = 1800


def architectures(contender: str, wanted: list[str]) -> list[str]:
    """Those that a contender has: the gateway makes servers of Thalweg alone."""
    needs = {"haproxy": "haproxy"}
    found = []
    for one in wanted:
        program = needs.get(one.partition(":")[2])
        if program is not None and shutil.which(program, path=f"{os.environ['PATH']}:/usr/sbin") is None:
            print(f"skipped: {one} needs {program}, which is not installed", file=sys.stderr)
        elif contender != "RabbitMQ" or one != "managed:gateway":
            found.append(one)
    return found


def name_of(architecture: str | dict[str, dict[str, str]]) -> str:
    """As on the command line."""
    if isinstance(architecture, str):
        return architecture
    ((word, parts),) = architecture.items()
    return f"{word}:{parts['by']}"


def run(arguments: argparse.Namespace, contender: str, experiment: str, server: list[str]) -> list[dict[str, Any]]:
    """All runs of one contender on one experiment."""
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "results.json"
        command = [str(arguments.thalweg), "workload", "run", "--experiment", experiment, "--json", str(path)]
        command += ["--consumers", ",".join(arguments.consumers), "--repeat", str(arguments.repeat)]
        command += ["--arch", ",".join(architectures(contender, arguments.architectures)), *server]
        done = subprocess.run(command, capture_output=True, text=True, timeout=LONGEST)
        if done.returncode != 0:
            print(f"{contender}, {experiment}: exit status {done.returncode}\n{done.stdout}{done.stderr}", file=sys.stderr)
        results = json.loads(path.read_text())["runs"] if path.exists() else []
    kept = []
    for one in (entry["result"] for entry in results):
        rate = one["wall"]["messages_per_second"]
        one["architecture"] = told = name_of(one["architecture"])
        print(f"{experiment:18} {told:16} {one['consumers']:3} {contender:14} {rate:10.0f} messages/s", flush=True)
        kept.append({"experiment": experiment, "on": contender} | {key: one.get(key) for key in KEPT})
    return kept


def text_of(document: dict[str, Any]) -> str:
    """A run a line."""
    lines = [f"{json.dumps(key)}: {json.dumps(value)}," for key, value in document.items() if key != "runs"]
    runs = ",\n".join(json.dumps(run) for run in document["runs"])
    return "\n".join(["{", *lines, '"runs": [', runs, "]", "}"]) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--thalweg", type=Path, required=True)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--repeat", type=int, default=1)
    parser.add_argument("--consumers", type=lambda text: text.split(","), default=["4"])
    parser.add_argument("--architectures", type=lambda text: text.split(","), default=ARCHITECTURES)
    parser.add_argument("--contenders", type=lambda text: text.split(";"), default=CONTENDERS)
    parser.add_argument("experiments", nargs="*", default=EXPERIMENTS)
    arguments = parser.parse_args()
    arguments.output.mkdir(parents=True, exist_ok=True)
    file = arguments.output / "workloads.json"
    runs: list[dict[str, Any]] = []
    for experiment in arguments.experiments:
        for contender in arguments.contenders:
            if contender == "RabbitMQ":
                if not Path("/usr/lib/rabbitmq/bin/rabbitmq-server").exists():
                    print("skipped: RabbitMQ is not installed (Debian: rabbitmq-server)", file=sys.stderr)
                    continue
                with tempfile.TemporaryDirectory() as directory, suites.rabbitmq(Path(directory)) as port:
                    url = f"amqp://guest:guest@127.0.0.1:{port}/"
                    runs += run(arguments, contender, experiment, ["--backend", "amqp", "--url", url])
            else:
                backend = "amqp" if contender == "Thalweg, AMQP" else "thalweg"
                runs += run(arguments, contender, experiment, ["--backend", backend, "--serve"])
            document = {
                "what": "thalweg workload run, one server for the runs of an experiment on a contender over an architecture",
                "commit": os.environ.get("THALWEG_COMMIT", "unknown"),
                "machine": f"{os.cpu_count()} cores, {platform.release()}",
                "runs": runs,
            }
            file.write_text(text_of(document))
    print(f"raw results: {file}")


if __name__ == "__main__":
    main()
