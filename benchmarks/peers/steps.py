"""Steps of one array from one writer to one reader, in turn: Thalweg, ADIOS2's SST with and without preload, BP5 files, ZeroMQ.

    steps.py --thalweg PROGRAM --adios2 PROGRAM --output DIR [--rounds N] [--bytes N,N,...] [CONTENDER ...]

Of each round and length the medians and lower quartiles of the steps count, and a line through the lengths; of the
rounds the median, the least and the most. Prints tables in Markdown; writes steps.json and a plot.
"""

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

# More than what is kept in memory: until then it is filled for the first time.
WARMUP = 16
PHASES = ("put", "end_step", "begin_step", "gets", "delay", "read_interval")


def quantile(times: list[float], fraction: float) -> float:
    """Between the two that are nearest."""
    ordered = sorted(times)
    place = (len(ordered) - 1) * fraction
    low, high = ordered[int(place)], ordered[min(int(place) + 1, len(ordered) - 1)]
    return low + (high - low) * (place % 1)


def times(values: list[float]) -> dict:
    return {
        "median": quantile(values, 0.5),
        "lower_quartile": quantile(values, 0.25),
        "max": max(values),
    }


def figures(size: int, writer: list, reader: list) -> dict:
    """What a run has shown, by when its two sides did what."""
    writer, reader = writer[WARMUP:], reader[WARMUP:]
    between = [after[2] - before[2] for before, after in zip(reader, reader[1:], strict=False)]
    rate = len(between) / (reader[-1][2] - reader[0][2]) * 1e9
    phases = {
        "put": times([one[1] - one[0] for one in writer]),
        "end_step": times([one[2] - one[1] for one in writer]),
        "begin_step": times([one[1] - one[0] for one in reader]),
        "gets": times([one[2] - one[1] for one in reader]),
        "delay": times([got[2] - put[0] for put, got in zip(writer, reader, strict=True)]),
        "read_interval": times(between),
    }
    stall = phases["read_interval"]["max"] / phases["read_interval"]["median"]
    return {"phases_ns": phases, "bytes_per_s": rate * size, "stall": stall}


def two(scratch: Path, writer: list, reader: list) -> tuple[list, list]:
    """Runs a writer and a reader until both have done their steps."""
    with tempfile.TemporaryFile("w+") as errors:
        sides = [
            subprocess.Popen(
                [str(word) for word in command],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                cwd=scratch,
            )
            for command in (writer, reader)
        ]
        try:
            for side in sides:
                side.stdout.readline()
            for side in sides:
                side.stdin.write("begin\n")
                side.stdin.flush()
            texts = [side.communicate(timeout=300)[0] for side in sides]
            return tuple(json.loads(text.splitlines()[-1]) for text in texts)
        except (json.JSONDecodeError, IndexError, subprocess.TimeoutExpired, BrokenPipeError):
            errors.seek(0)
            sys.exit(f"{reader}: {errors.read() or 'failed without a word'}")
        finally:
            for side in sides:
                side.kill()
                side.wait()


class Bench:
    """The contenders: each gives the figures of one run."""

    def __init__(self, options, scratch: Path):
        self.options, self.scratch = options, scratch
        self.runs = 0

    def thalweg(self, transport: str, storage: str, put: str = "copy"):
        def run(size: int, steps: int, every_us: int) -> dict:
            words = [self.options.thalweg, "bench", "steps", "--json", "--repetitions", "1"]
            words += ["--transport", transport, "--storage", storage, "--put", put]
            words += ["--durability", "memory" if storage == "memory" else "written"]
            words += ["--bytes", size, "--steps", steps, "--warmup", WARMUP, "--every-us", every_us]
            words += ["--directory", self.scratch / f"thalweg-{self.runs}"]
            text = subprocess.run(
                [str(word) for word in words], check=True, capture_output=True, text=True
            ).stdout
            case = json.loads(text)

            def one(value):
                """There is one repetition."""
                return {key: value[key]["median"] for key in ("median", "lower_quartile", "max")}

            return {
                "phases_ns": {name: one(case["phases_ns"][name]) for name in PHASES},
                "bytes_per_s": case["bytes_per_s"]["median"],
                "stall": case["stall"]["median"],
            }

        return run

    def adios2(self, engines: tuple[str, str], directory: Path, **parameters):
        def run(size: int, steps: int, every_us: int) -> dict:
            words = [f"{key}={value}" for key, value in parameters.items()]
            name = directory / f"steps-{self.runs}.bp"

            def side(role, engine):
                count = steps + WARMUP
                return [self.options.adios2, role, engine, name, size, count, every_us, *words]

            try:
                marks = two(self.scratch, side("write", engines[0]), side("read", engines[1]))
            finally:
                shutil.rmtree(name, ignore_errors=True)
            return figures(size, *marks)

        return run

    def zeromq(self, transport: str):
        def run(size: int, steps: int, every_us: int) -> dict:
            address = f"ipc://{self.scratch}/zeromq-{self.runs}"
            if transport == "tcp":
                address = f"tcp://127.0.0.1:{20000 + (os.getpid() * 7 + self.runs) % 20000}"

            def side(role):
                return [sys.executable, __file__, role, address, size, steps + WARMUP, every_us]

            return figures(size, *two(self.scratch, side("zeromq-write"), side("zeromq-read")))

        return run

    def contenders(self) -> dict:
        sst = {"RendezvousReaderCount": 1, "QueueLimit": 2, "QueueFullPolicy": "Block"}
        sst |= {"MarshalMethod": "BP5", "DataTransport": "evpath", "OpenTimeoutSecs": 60}
        files = {"OpenTimeoutSecs": 60, "StreamReader": "true", "BeginStepPollingFrequencySecs": 0.001}
        shared = Path("/dev/shm") / f"thalweg-steps-{os.getpid()}"
        shared.mkdir(exist_ok=True)
        return {
            "Thalweg shm, memory": self.thalweg("shm", "memory"),
            "Thalweg tcp, memory": self.thalweg("tcp", "memory"),
            "Thalweg shm, written": self.thalweg("shm", "disk"),
            "Thalweg tcp, written": self.thalweg("tcp", "disk"),
            "Thalweg shm, memory, made in place": self.thalweg("shm", "memory", "span"),
            "SST": self.adios2(("SST", "SST"), self.scratch, **sst),
            "SST without preload": self.adios2(
                ("SST", "SST"), self.scratch, SpeculativePreloadMode="Off", **sst
            ),
            "BP5 files, disk": self.adios2(("BP5", "BP5"), self.scratch, **files),
            "BP5 files, tmpfs": self.adios2(("BP5", "BP5"), shared, **files),
            "ZeroMQ tcp, bytes alone": self.zeromq("tcp"),
            "ZeroMQ ipc, bytes alone": self.zeromq("ipc"),
        }


def zeromq(role: str, address: str, size: int, steps: int, every_us: int) -> None:
    """One side: messages of so many bytes, two of them under way."""
    import numpy
    import zmq

    context = zmq.Context()
    memory = numpy.ones(size // 8)
    marks = []
    socket = context.socket(zmq.PUSH if role == "zeromq-write" else zmq.PULL)
    socket.set_hwm(1)
    if role == "zeromq-write":
        socket.bind(address)
    print("ready", flush=True)
    if not sys.stdin.readline():
        sys.exit(1)
    if role == "zeromq-write":
        first = time.monotonic_ns()
        for step in range(steps):
            due = first + step * every_us * 1000
            time.sleep(max(0, due - time.monotonic_ns()) / 1e9)
            began = time.monotonic_ns()
            memory[0] = step
            socket.send(memory)
            ended = time.monotonic_ns()
            marks.append((began, began, ended, ended))
    else:
        socket.connect(address)
        for step in range(steps):
            asked = time.monotonic_ns()
            # When it begins to come nobody can tell: all of it is loading.
            socket.recv_into(memory)
            got = time.monotonic_ns()
            if memory[0] != step:
                sys.exit(f"message {step} has {memory[0]}")
            marks.append((asked, asked, got, got))
    print(json.dumps(marks), flush=True)
    socket.close()
    context.term()


def line(points: list[tuple[float, float]]) -> dict:
    """Least squares through (bytes, nanoseconds): overhead and rate, and what each time is above the line."""
    bytes_, nanoseconds = zip(*points, strict=True)
    slope, overhead = statistics.linear_regression(bytes_, nanoseconds)
    residuals = [time - overhead - slope * size for size, time in points]
    return {"overhead_ns": overhead, "bytes_per_s": 1e9 / slope, "residuals_ns": residuals}


def spread(values: list[float]) -> dict:
    return {"median": statistics.median(values), "min": min(values), "max": max(values)}


def measure(options, bench: Bench) -> dict:
    """Of each contender its rounds: of each length the figures."""
    contenders = bench.contenders()
    wanted = options.contender or list(contenders)
    rounds = {name: [] for name in contenders if name in wanted}
    for index in range(options.rounds):
        for name, round_ in rounds.items():
            round_.append({})
        # A length after the other, and of each all contenders in turn.
        for size in [*options.bytes, "small"]:
            for name, round_ in rounds.items():
                bench.runs += 1
                if size == "small":
                    one = contenders[name](options.small_bytes, options.small_steps, options.every_us)
                else:
                    one = contenders[name](size, options.steps, 0)
                round_[-1][str(size)] = one
                gets, delay = (one["phases_ns"][of]["median"] / 1e6 for of in ("gets", "delay"))
                text = f"round {index + 1}, {size} B: gets {gets:.3f} ms, delay {delay:.3f} ms"
                print(f"{text}, {one['bytes_per_s'] / 1e6:.0f} MB/s  {name}", file=sys.stderr)
                for left in bench.scratch.glob("thalweg-*"):
                    shutil.rmtree(left, ignore_errors=True)
                os.sync()
    return rounds


def summary(options, rounds: dict) -> dict:
    """Of each contender the spreads of its figures over the rounds, and its ratios to SST in the same round."""
    result = {}
    for name, of_name in rounds.items():
        one = {"lengths": {}, "lines": {}}
        for size in [*map(str, options.bytes), "small"]:
            cells = [round_[size] for round_ in of_name]
            one["lengths"][size] = {
                "bytes_per_s": spread([cell["bytes_per_s"] for cell in cells]),
                "stall": spread([cell["stall"] for cell in cells]),
                "phases_ns": {
                    phase: {
                        of: spread([cell["phases_ns"][phase][of] for cell in cells])
                        for of in ("median", "lower_quartile", "max")
                    }
                    for phase in PHASES
                },
            }
        for phase in ("gets", "read_interval"):
            for of in ("median", "lower_quartile"):
                fits = [
                    line([(size, round_[str(size)]["phases_ns"][phase][of]) for size in options.bytes])
                    for round_ in of_name
                ]
                one["lines"][f"{phase}, {of}"] = {
                    "overhead_ns": spread([fit["overhead_ns"] for fit in fits]),
                    "bytes_per_s": spread([fit["bytes_per_s"] for fit in fits]),
                    "residuals_ns": [
                        spread([fit["residuals_ns"][index] for fit in fits])
                        for index in range(len(options.bytes))
                    ],
                    "rounds_bytes_per_s": [fit["bytes_per_s"] for fit in fits],
                }
        result[name] = one
    for name in result:
        ratios = {}
        for other in ("SST", "SST without preload"):
            if other not in rounds:
                continue
            pairs = list(zip(rounds[name], rounds[other], strict=True))
            for size in map(str, options.bytes):
                ratios[f"rate at {size} B, of {other}"] = spread(
                    [own[size]["bytes_per_s"] / its[size]["bytes_per_s"] for own, its in pairs]
                )
            for of in ("median", "lower_quartile"):
                key = f"gets, {of}"
                own, its = (result[who]["lines"][key]["rounds_bytes_per_s"] for who in (name, other))
                ratios[f"slope of {key}, of {other}"] = spread(
                    [a / b for a, b in zip(own, its, strict=True)]
                )
            for phase in ("delay", "gets"):
                ratios[f"{phase} of a small step, of {other}"] = spread(
                    [
                        own["small"]["phases_ns"][phase]["median"]
                        / its["small"]["phases_ns"][phase]["median"]
                        for own, its in pairs
                    ]
                )
        result[name]["ratios"] = ratios
    return result


def text(value: dict, scale: float, digits: int) -> str:
    median, least, most = (value[of] * scale for of in ("median", "min", "max"))
    return f"{median:.{digits}f} [{least:.{digits}f} to {most:.{digits}f}]"


def table(options, result: dict) -> str:
    sizes = [str(size) for size in options.bytes]
    header = ["", *(f"{int(size) / 1e6:g} MB, MB/s" for size in sizes[-2:])]
    header += ["slope of gets, GB/s: medians", "lower quartiles", "overhead, ms"]
    header += [f"{options.small_bytes / 1e3:g} KB, begin to read, ms", "gets, ms", "longest of median"]
    lines = ["| " + " | ".join(header) + " |", "|" + " --- |" * len(header)]
    for name, one in result.items():
        row = [name]
        row += [text(one["lengths"][size]["bytes_per_s"], 1e-6, 0) for size in sizes[-2:]]
        for of in ("median", "lower_quartile"):
            row.append(text(one["lines"][f"gets, {of}"]["bytes_per_s"], 1e-9, 2))
        row.append(text(one["lines"]["gets, median"]["overhead_ns"], 1e-6, 2))
        for phase in ("delay", "gets"):
            # When a message begins to come ZeroMQ does not tell.
            is_known = phase == "delay" or not name.startswith("ZeroMQ")
            small = one["lengths"]["small"]["phases_ns"][phase]["median"]
            row.append(text(small, 1e-6, 3) if is_known else "")
        row.append(text(one["lengths"][sizes[-1]]["stall"], 1, 1))
        lines.append("| " + " | ".join(row) + " |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--thalweg", required=True, type=Path)
    parser.add_argument("--adios2", required=True, type=Path)
    parser.add_argument("--output", required=True, type=Path)
    parser.add_argument("--rounds", type=int, default=5)
    lengths = [5_000_000, 10_000_000, 25_000_000, 50_000_000, 100_000_000]
    parser.add_argument("--bytes", type=lambda text: [int(n) for n in text.split(",")], default=lengths)
    parser.add_argument("--steps", type=int, default=16)
    parser.add_argument("--small-bytes", type=int, default=10_000)
    parser.add_argument("--small-steps", type=int, default=200)
    parser.add_argument("--every-us", type=int, default=2_000, help="from one small step to the next")
    parser.add_argument("contender", nargs="*")
    options = parser.parse_args()
    options.thalweg, options.adios2 = options.thalweg.resolve(), options.adios2.resolve()
    options.output = options.output.resolve()
    options.output.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=options.output) as scratch:
        bench = Bench(options, Path(scratch))
        load = os.getloadavg()
        rounds = measure(options, bench)
        shutil.rmtree(f"/dev/shm/thalweg-steps-{os.getpid()}", ignore_errors=True)
    result = summary(options, rounds)
    file = {
        "what": "scripts/bench-steps",
        "commit": os.environ.get("THALWEG_COMMIT", "unknown"),
        "load": {"before": load, "after": os.getloadavg()},
        "rounds": options.rounds,
        "steps": options.steps,
        "small": {"bytes": options.small_bytes, "steps": options.small_steps, "every_us": options.every_us},
        "bytes": options.bytes,
        "contenders": result,
        "raw": rounds,
    }
    (options.output / "steps.json").write_text(json.dumps(file, indent=1) + "\n")
    print(table(options, result))


if __name__ == "__main__":
    if len(sys.argv) > 1 and sys.argv[1].startswith("zeromq-"):
        zeromq(sys.argv[1], sys.argv[2], *map(int, sys.argv[3:]))
    else:
        main()
