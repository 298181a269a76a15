"""What the ways between two sites cost: work that is shared and requests, through each in turn, on this host.

    compare.py --thalweg PROGRAM --build DIR --output DIR [--quick] [--repeats N] [grid|tokens|tls|line ...]

Prints tables in Markdown, and writes sites.json to the output directory. Everything is on loopback or in network
namespaces of its own, and nothing is left running. `line` needs root and is left out elsewhere.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import line
import tables
import tls
import tokens
from ways import FRESH, WAYS, Place, Way, cpu_seconds, end

HERE = Path(__file__).parent
PARTS = ("grid", "tls", "tokens", "line")
SIZES = (16 << 10, 1 << 20)
# Rates that runs are planned by until one was measured, in messages or requests a second.
FIRST_RATE = {"share": {SIZES[0]: 20_000, SIZES[1]: 400}, "ask": {SIZES[0]: 5_000, SIZES[1]: 100}}


class Load:
    """The server of the load, and clients of it."""

    def __init__(self, program: Path, stack: ExitStack) -> None:
        self.program = str(program)
        words = [self.program, "serve"]
        self.server = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        stack.callback(end, self.server)
        assert self.server.stdout is not None
        self.port = int(self.server.stdout.readline())

    def run(self, way: Way, work: str, clients: int, size: int, count: int) -> dict[str, Any]:
        """One run, with what it cost whom."""
        words = [self.program, work, way.host, str(way.port), str(clients), str(size), str(count)]
        if way.prefix is not None:
            words.append(way.prefix)
        before, server = way.cpu(), cpu_seconds(self.server.pid)
        done = subprocess.run(words, capture_output=True, text=True, timeout=120)
        if done.returncode != 0:
            return {"state": f"failed: {done.stderr.strip()}"}
        # What is still to be said about the ends of connections.
        time.sleep(0.02)
        result: dict[str, Any] = json.loads(done.stdout)
        moved = result["bytes"] * (2 if work == "ask" else 1) / 1e9
        used = {name: seconds - before[name] for name, seconds in way.cpu().items()}
        result["server_cpu_s"] = cpu_seconds(self.server.pid) - server
        result["proxy_cpu_s"] = used
        if result["state"] == "done":
            result["per_s"] = count / result["seconds"]
            result["mb_per_s"] = moved * 1e3 / result["seconds"]
            result["proxy_cpu_s_per_gb"] = sum(used.values()) / moved
            result["all_cpu_s_per_gb"] = (sum(used.values()) + result["server_cpu_s"] + result["client_cpu_s"]) / moved
        return result


def here(names: list[str]) -> list[str]:
    """Those whose programs are there."""
    found = []
    for name in names:
        program = WAYS[name][1]
        if program and shutil.which(program) is None:
            print(f"left out: {name}: there is no {program}", file=sys.stderr)
        else:
            found.append(name)
    return found


def grid(options: argparse.Namespace, stack: ExitStack, scratch: Path) -> list[dict[str, Any]]:
    """All ways, sizes and numbers of clients in turn, `repeats` times; a run of each before that does not count."""
    load = Load(options.load, stack)
    names = here(list(WAYS))
    open_ways: dict[str, Way] = {}
    for at, name in enumerate(names):
        if name not in FRESH:
            open_ways[name] = WAYS[name][0](Place(scratch / str(at), options.thalweg, stack), load.port)
    rates: dict[tuple[str, str, int], float] = {}
    stalled: set[tuple[str, str, int, int]] = set()
    runs: list[dict[str, Any]] = []

    def one(name: str, work: str, size: int, clients: int, seconds: float) -> dict[str, Any]:
        rate = rates.get((name, work, size), FIRST_RATE[work][size])
        count = max(2 * clients, round(rate * seconds))
        with ExitStack() as of_this_run:
            if name in FRESH:
                folder = Path(tempfile.mkdtemp(dir=scratch))
                way = WAYS[name][0](Place(folder, options.thalweg, of_this_run), load.port)
            else:
                way = open_ways[name]
            result = load.run(way, work, clients, size, count)
        if result["state"] == "done":
            rates[name, work, size] = result["per_s"]
        return {"way": name, "work": work, "bytes_each": size, "clients": clients, **result}

    cells = [(work, size, clients) for work in ("share", "ask") for size in SIZES for clients in options.clients]
    for work in ("share", "ask"):
        for size in SIZES:
            for name in names:
                one(name, work, size, options.clients[0] if name in FRESH else 4, 0.15)
    for repeat in range(options.repeats):
        for work, size, clients in cells:
            for name in names:
                if (name, work, size, clients) in stalled:
                    continue
                result = one(name, work, size, clients, options.seconds)
                result["repeat"] = repeat
                runs.append(result)
                if result["state"] != "done":
                    stalled.add((name, work, size, clients))
                told = f"{result.get('mb_per_s', 0):.0f} MB/s, {result.get('p50_us', 0):.0f} us, {result['state']}"
                print(f"{repeat}: {work} {size} x {clients}: {name}: {told}", file=sys.stderr, flush=True)
    return runs


def machine() -> dict[str, Any]:
    model = [text for text in Path("/proc/cpuinfo").read_text().splitlines() if text.startswith("model name")]

    def version(*command: str) -> str:
        if shutil.which(command[0]) is None:
            return "none"
        done = subprocess.run(command, capture_output=True, text=True)
        found = re.search(r"\d+\.\d+[.\w+-]*", done.stdout + done.stderr)
        return found.group() if found else "unknown"

    return {
        "cpu": model[0].partition(":")[2].strip() if model else "",
        "cores": os.cpu_count(),
        "kernel": os.uname().release,
        "haproxy": version("haproxy", "-v"),
        "stunnel": version("stunnel4", "-version"),
        "openssl": version("openssl", "version"),
    }


def rounded(value: Any) -> Any:
    """The same with figures of six digits."""
    if isinstance(value, float):
        return float(f"{value:.6g}")
    if isinstance(value, dict):
        return {key: rounded(one) for key, one in value.items()}
    return [rounded(one) for one in value] if isinstance(value, (list, tuple)) else value


def as_text(results: dict[str, Any]) -> str:
    """JSON with one run a line."""
    parts = []
    for key, value in rounded(results).items():
        is_runs = isinstance(value, list) and value and isinstance(value[0], dict)
        text = "[\n" + ",\n".join(json.dumps(run) for run in value) + "\n]" if is_runs else json.dumps(value)
        parts.append(f"{json.dumps(key)}: {text}")
    return "{\n" + ",\n".join(parts) + "\n}\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", default=list(PARTS), metavar="PART")
    parser.add_argument("--thalweg", required=True)
    parser.add_argument("--python", default=sys.executable, help="a Python that has the package thalweg")
    parser.add_argument("--load", type=Path, required=True, help="load.c, compiled")
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help="a minute of it, for whether it runs")
    options = parser.parse_args()
    options.seconds = 0.1 if options.quick else 0.6
    options.clients = (1, 64) if options.quick else (1, 4, 16, 64)
    if options.quick:
        options.repeats = 1
    results: dict[str, Any] = {
        "what": "scripts/bench-sites",
        "commit": os.environ.get("THALWEG_COMMIT", "unknown"),
        "date": time.strftime("%Y-%m-%d"),
        "quick": options.quick,
        "machine": machine(),
        "load_before": os.getloadavg(),
        "took_s": {},
    }
    for part in options.parts or PARTS:
        began = time.monotonic()
        with tempfile.TemporaryDirectory(prefix="thalweg-sites-") as scratch, ExitStack() as stack:
            place = Path(scratch)
            if part == "grid":
                results[part] = grid(options, stack, place)
            elif part == "tokens":
                results[part] = tokens.measure(options, stack, place)
            elif part == "tls":
                results[part] = tls.measure(options, stack, place)
            elif why := line.missing():
                print(f"left out: line: {why}", file=sys.stderr)
            else:
                results[part] = line.measure(options, stack, place)
        results["took_s"][part] = time.monotonic() - began
        results["load_after"] = os.getloadavg()
        options.output.mkdir(parents=True, exist_ok=True)
        (options.output / "sites.json").write_text(as_text(results))
    print(tables.page(results))


if __name__ == "__main__":
    main()
