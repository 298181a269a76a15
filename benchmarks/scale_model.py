"""Makes the tables and the plot of docs/scale.md of samples: benchmarks/scale_model.py [SAMPLES] [--print]

Each cost is a line through the medians of the two smaller sizes, which is checked on the largest one. What a thousand servers
would cost is computed of these lines. Needs nothing but Python.
"""

from __future__ import annotations

import json
import statistics
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "benchmarks" / "peers"))

import plots  # noqa: E402

PAGE = ROOT / "docs" / "scale.md"
SAMPLES = ROOT / "benchmarks" / "results" / "2026-11-28-scale.json"
BEGINS, ENDS = "<!-- figures: benchmarks/scale_model.py -->", "<!-- end of figures -->"

Sample = dict[str, Any]
Value = Callable[[Sample], float]


class Line:
    """A cost, by size: a line through the medians at the two smaller sizes."""

    def __init__(self, samples: list[Sample], size: Value, cost: Value) -> None:
        self.cells: dict[float, list[float]] = {}
        for sample in samples:
            self.cells.setdefault(size(sample), []).append(cost(sample))
        self.sizes = sorted(self.cells)
        self.medians = [statistics.median(self.cells[one]) for one in self.sizes]
        (x0, x1), (y0, y1) = self.sizes[-3:-1], self.medians[-3:-1]
        self.slope = (y1 - y0) / (x1 - x0)
        self.base = y0 - self.slope * x0
        # What is beyond all that was measured is computed of all that was: least squares through the three medians.
        sizes, medians = self.sizes[-3:], self.medians[-3:]
        x, y = statistics.fmean(sizes), statistics.fmean(medians)
        over = sum((one - x) ** 2 for one in sizes)
        self.each = sum((a - x) * (b - y) for a, b in zip(sizes, medians, strict=True)) / over
        self.fixed = y - self.each * x

    def at(self, size: float) -> float:
        return self.base + self.slope * size

    def beyond(self, size: float) -> float:
        return self.fixed + self.each * size

    @property
    def error(self) -> float:
        """By how much the largest size differs from what the line says."""
        return self.at(self.sizes[-1]) / self.medians[-1] - 1 if self.medians[-1] else 0.0


def figure(value: float) -> str:
    if value == 0:
        return "0"
    digits = max(0, 2 - len(str(int(abs(value)))) + 1) if abs(value) >= 1 else 3
    return f"{value:,.{digits}f}" if abs(value) >= 0.01 else f"{value:.2g}"


def spread(values: list[float], factor: float) -> str:
    middle, least, most = (each * factor for each in (statistics.median(values), min(values), max(values)))
    if len(values) == 1 or figure(least) == figure(most):
        return figure(middle)
    return f"{figure(middle)} [{figure(least)} to {figure(most)}]"


class Model:
    """All lines, by name."""

    def __init__(self, samples: list[Sample]) -> None:
        self.samples = samples
        self.lines: dict[str, Line] = {}
        self.rows: dict[str, list[str]] = {}

    def of(self, part: str, **where: Any) -> list[Sample]:
        return [
            one for one in self.samples
            if one["part"] == part and all(one[key] == value for key, value in where.items())
        ]  # fmt: skip

    def add(
        self, table: str, name: str, label: str, samples: list[Sample], size: Value, cost: Value, unit: str, factor: float = 1.0
    ) -> None:
        if len({size(one) for one in samples}) < 3:
            return
        line = Line(samples, size, cost)
        self.lines[name] = line
        cells = [spread(line.cells[one], factor) for one in line.sizes[-3:]]
        said = figure(line.at(line.sizes[-1]) * factor)
        error = line.error
        mark = "**" if abs(error) > 0.25 else ""
        self.rows.setdefault(table, []).append(
            f"| {label}{unit and ', '}{unit} | {' | '.join(cells)} | {said} | {mark}{round(error * 100) or 0:+d} %{mark} |"
        )

    def table(self, name: str, sizes: str) -> list[str]:
        head = [f"| | {sizes} | predicted | error |", "| --- | --- | --- | --- | --- | --- |"]
        return [*head, *self.rows[name], ""]


def copy_disk(sample: Sample) -> float:
    """What the copy of the table takes on the disk of a server, without a voter's log."""
    logs = [quorum["bytes"] if quorum else 0 for quorum in sample["quorum"]]
    return statistics.median(whole - log for whole, log in zip(sample["disk"], logs, strict=True))


def build(samples: list[Sample]) -> Model:
    model = Model(samples)
    kib, mib = 1 / 1024, 1 / (1 << 20)
    for of_each in (1, 10):
        rows = [one for one in model.of("partitions") if one["partitions"] == of_each * one["topics"]]
        if not rows:
            continue
        table, key = f"partitions-{of_each}", str(of_each)
        count: Value = lambda one: one["partitions"]  # noqa: E731
        model.add(table, f"made-{key}", "memory, behind their creation", rows, count, lambda one: one["made"]["anon"], "MiB", mib)
        model.add(table, f"started-{key}", "memory, behind a start", rows, count, lambda one: one["started"]["anon"], "MiB", mib)
        model.add(table, f"blocks-{key}", "disk, blocks", rows, count, lambda one: one["disk"]["blocks"], "MiB", mib)
        model.add(table, f"entries-{key}", "files and directories", rows, count, lambda one: one["disk"]["entries"], "thousands", 1e-3)
        model.add(table, f"internal-{key}", "disk, the table's log", rows, count, lambda one: one["table_disk"]["bytes"], "KiB", kib)
        model.add(table, f"ready-{key}", "start, ready", rows, count,
                  lambda one: statistics.median(each["ready_s"] for each in one["starts"]), "s")  # fmt: skip
        model.add(table, f"ready-cpu-{key}", "start, processor time", rows, count,
                  lambda one: statistics.median(each["ready_cpu_s"] for each in one["starts"]), "s")  # fmt: skip
        model.add(table, f"killed-{key}", "start after SIGKILL, ready", rows, count, lambda one: one["starts_killed"][0]["ready_s"], "s")
        model.add(table, f"idle-{key}", "idle", rows, count, lambda one: one["idle_started"]["cpu"][0], "% of a core", 100)
        model.add(table, f"fds-{key}", "open files", rows, count, lambda one: one["descriptors"], "")
    for kind in ("connected", "waiting", "used"):
        rows = model.of("clients", kind=kind)
        if not rows:
            continue
        count = lambda one: one["clients"]  # noqa: E731
        table = f"clients-{kind}"
        model.add(table, f"memory-{kind}", "memory of the server, more than without", rows, count,
                  lambda one: one["after"]["anon"] - one["before"]["anon"], "MiB", mib)  # fmt: skip
        model.add(table, f"cpu-{kind}", "idle, the server", rows, count, lambda one: one["idle"]["cpu"][0], "% of a core", 100)
        model.add(table, f"wakeups-{kind}", "wake-ups of the server", rows, count, lambda one: one["idle"]["wakeups_per_s"][0], "a second")
        model.add(table, f"bytes-{kind}", "on the wire, both ways", rows, count, lambda one: one["idle"]["bytes_per_s"], "KiB/s", kib)
        model.add(table, f"packets-{kind}", "packets, both ways", rows, count, lambda one: one["idle"]["packets_per_s"], "a second")
        model.add(table, f"connect-{kind}", "to connect, processor time of the server", rows, count, lambda one: one["connect_cpu_s"], "s")
        model.add(table, f"sockets-{kind}", "sockets of the server", rows, count, lambda one: one["sockets"], "")
        model.add(table, f"client-memory-{kind}", "memory of the clients together", rows, count,
                  lambda one: one["client_anon"] * one["clients"], "MiB", mib)  # fmt: skip
        model.add(table, f"client-cpu-{kind}", "idle, the clients together", rows, count,
                  lambda one: one["client_cpu"] * one["clients"], "% of a core", 100)  # fmt: skip
    rows = [one for one in model.of("servers") if one["servers"] >= VOTERS]
    if rows:
        size: Value = lambda one: one["servers"]  # noqa: E731
        add = lambda *arguments: model.add("servers", arguments[0], arguments[1], rows, size, *arguments[2:])  # noqa: E731
        add("voter-memory", "memory of a voter", lambda one: statistics.median(m["anon"] for m in one["memory"][:3]), "MiB", mib)
        add("links-bytes", "between servers, on the wire", lambda one: one["idle"]["bytes_per_s"], "KiB/s", kib)
        add("links-packets", "between servers, packets", lambda one: one["idle"]["packets_per_s"], "a second")
        add("leader-cpu", "idle, the busiest server", lambda one: max(one["idle"]["cpu"]), "% of a core", 100)
        add("leader-wakeups", "wake-ups of the busiest server", lambda one: max(one["idle"]["wakeups_per_s"]), "a second")
        add("voter-sockets", "sockets of a voter", lambda one: statistics.median(d["sockets"] for d in one["descriptors"][:3]), "")
        add("opens", "files of the shared directory opened", lambda one: one["opens_per_s"], "a second")
        add("create-bytes", "a topic is made: on the wire", lambda one: one["create_bytes"], "KiB", kib)
        add("create-cpu", "… processor time, the busiest server but the topic's own", lambda one: sorted(one["create_cpu_ms"])[-2], "ms")
        add("create-own", "… the topic's own server", lambda one: max(one["create_cpu_ms"]), "ms")
        add("create-others", "… the idlest one", lambda one: min(one["create_cpu_ms"]), "ms")
        add("create-p50", "… until it is there, median", lambda one: one["create_ms"]["p50"], "ms")
    for of_each in (1, 10):
        rows = [one for one in model.of("table") if one["partitions"] == of_each * one["topics"]]
        if not rows:
            continue
        table, key = f"table-{of_each}", str(of_each)
        count = lambda one: one["partitions"]  # noqa: E731
        model.add(table, f"copy-{key}", "memory of the copy, at a server without these topics", rows, count,
                  lambda one: statistics.median(b["anon"] - a["anon"] for a, b in zip(one["before"], one["after"], strict=True)),
                  "MiB", mib)  # fmt: skip
        model.add(table, f"copy-disk-{key}", "disk of the copy", rows, count, copy_disk, "MiB", mib)
        model.add(table, f"voter-disk-{key}", "disk of a voter's log, besides", rows, count,
                  lambda one: max(quorum["bytes"] for quorum in one["quorum"] if quorum), "MiB", mib)  # fmt: skip
        model.add(table, f"table-cpu-{key}", "idle, the busiest server", rows, count, lambda one: max(one["idle"]["cpu"]), "% of a core", 100)
        model.add(table, f"table-bytes-{key}", "idle, between servers", rows, count, lambda one: one["idle"]["bytes_per_s"], "KiB/s", kib)
        model.add(table, f"again-{key}", "a follower starts again, processor time", rows, count, lambda one: one["restart_cpu_s"], "s")
        model.add(table, f"again-bytes-{key}", "… on the wire meanwhile", rows, count, lambda one: one["restart_bytes"], "KiB", kib)
    return model


def of_all(samples: list[Sample], *path: str) -> list[float]:
    """A figure of all samples, and of all servers of each."""
    found: list[float] = []
    for sample in samples:
        value: Any = sample
        for key in path:
            value = value[key]
        found += value if isinstance(value, list) else [value]
    return found


def asked(model: Model) -> list[str]:
    """What was asked for, and what is."""
    out = ["| | measured | asked |", "| --- | --- | --- |"]
    idle, start = model.of("idle"), model.of("start")
    if idle:
        cpu = of_all(idle, "idle", "cpu")
        partitions = "; ".join(str(one) for one in idle[-1]["partitions"])
        mark = "2 %" if max(cpu) < 0.02 else "**2 %: missed**"
        out.append(f"| 10,000 idle partitions on four servers ({partitions}), each | {spread(cpu, 100)} % of a core | {mark} |")
        memory = [one["anon"] for sample in idle for one in sample["memory"]]
        out.append(f"| … memory of each | {spread(memory, 1 / (1 << 20))} MiB | |")
    labels = {
        "in_memory": "start, 10,000 partitions without events, directory in memory",
        "empty": "start, 10,000 partitions without events, on the disk",
        "clean": "start, 10,000 partitions with {gb} of events, behind SIGTERM",
        "killed": "start, the same, behind SIGKILL",
    }
    for key, label in labels.items():
        runs = [one for sample in start for one in sample.get(key, [])]
        if not runs:
            continue
        gb = f"{start[-1]['disk']['bytes'] / 1e9:.1f} GB"
        ready, cpu = [one["ready_s"] for one in runs], [one["ready_cpu_s"] for one in runs]
        mark = "" if key == "in_memory" else "2 s" if statistics.median(ready) < 2 else "**2 s: missed**"
        out.append(f"| {label.format(gb=gb)} | {spread(ready, 1)} s, of it {spread(cpu, 1)} s of processor | {mark} |")
    return [*out, ""]


def quota(model: Model, part: str) -> list[str]:
    """Servers with a share of a processor each."""
    out = ["| share, servers | produced, thousands a second | consumed | of its share each server used | times what half as many did: produced; consumed |",
           "| --- | --- | --- | --- | --- |"]  # fmt: skip
    for share in sorted({one["quota"] for one in model.of(part)}):
        rounds: list[dict[int, Sample]] = []
        for row in model.of(part, quota=share):
            if row["servers"] == 1:
                rounds.append({})
            rounds[-1][row["servers"]] = row
        for size in (1, 2, 4):
            these = [one[size] for one in rounds if size in one]
            ratios = []
            for key in ("produced_per_s", "consumed_per_s"):
                pairs = [one[size][key] / max(one[size // 2][key], 1) for one in rounds if size in one and size // 2 in one]
                if pairs:
                    within = abs(statistics.median(pairs) - 2) <= 0.2
                    ratios.append(f"{spread(pairs, 1)} ×" if within else f"**{spread(pairs, 1)} ×**")
            used = [cpu / share for one in these for cpu in one["cpu"]]
            cells = [spread([one[key] for one in these], 1e-3) for key in ("produced_per_s", "consumed_per_s")]
            out.append(f"| {share}, {size} | {' | '.join(cells)} | {spread(used, 100)} % | {'; '.join(ratios)} |")
    return [*out, ""]


NODES, CLIENTS, PARTITIONS, VOTERS = 1_000, 100_000, 100_000, 3
FURTHER_RANKS = 64
"""Of the ranks behind the voters, so many are looked for in the shared directory."""


def opens_per_s(servers: int, voters: int) -> float:
    """Files of the shared directory that all servers open together: every two seconds the own one, the voters' and the next 64."""
    further = min(servers, voters + FURTHER_RANKS) - voters
    of_voter, of_other = 1 + voters - 1 + further, 1 + voters + further
    return (voters * of_voter + (servers - voters) * of_other) / 2


def opens(model: Model) -> list[str]:
    """The shared directory: what the code says, beside what was counted."""
    rows = model.of("servers")
    sizes = sorted({one["servers"] for one in rows if one["servers"] >= VOTERS})
    out = ["| servers | opened a second, counted | by the code |", "| --- | --- | --- |"]
    for size in sizes:
        counted = [one["opens_per_s"] for one in rows if one["servers"] == size]
        out.append(f"| {size} | {spread(counted, 1)} | {figure(opens_per_s(size, VOTERS))} |")
    return [*out, f"| {NODES:,} | not measured | {opens_per_s(NODES, VOTERS):,.0f} |", ""]


def extrapolated(model: Model) -> list[str]:
    """What the lines say of a thousand servers."""
    line, mib = model.lines, 1 << 20
    if missing := {"voter-memory", "copy-10", "started-10", "memory-used", "cpu-waiting"} - set(line):
        return [f"Not computed: there are no samples for {', '.join(sorted(missing))}.", ""]
    per_server = CLIENTS // NODES
    own = PARTITIONS // NODES
    of_link = line["links-bytes"].each / VOTERS
    voter_links, other_links = NODES - 1, VOTERS
    base = line["voter-memory"].fixed
    link_memory = line["voter-memory"].each
    copy = line["copy-10"].each * PARTITIONS
    of_own = line["started-10"].each * own
    of_clients = line["memory-used"].each * per_server

    def both(label: str, voter: str, other: str) -> str:
        return f"| {label} | {voter} | {other} |"

    def memory(value: float) -> str:
        return f"{figure(value / mib)} MiB"

    total = {name: base + links * link_memory + copy + of_own + of_clients for name, links in (("v", voter_links), ("o", other_links))}
    client_cpu = line["cpu-waiting"].each * per_server
    idlest = [min(one["idle"]["cpu"]) for one in model.of("servers", servers=8)]
    out = ["| at each server | a voter | another one |", "| --- | --- | --- |"]
    out += [
        both("memory: itself", memory(base), memory(base)),
        both("… links to other servers", memory(voter_links * link_memory), memory(other_links * link_memory)),
        both("… copy of the table: 10,000 topics of ten partitions", memory(copy), memory(copy)),
        both(f"… its own {own} partitions", memory(of_own), memory(of_own)),
        both(f"… {per_server} clients that have moved an event each way", memory(of_clients), memory(of_clients)),
        both("… together", f"**{memory(total['v'])}**", f"**{memory(total['o'])}**"),
        both("disk: the table (and the voter's log)",
             f"{memory(line['copy-disk-10'].each * PARTITIONS)} ({memory(line['voter-disk-10'].each * PARTITIONS)})",
             memory(line["copy-disk-10"].each * PARTITIONS)),
        both("connections to servers", f"{voter_links}", f"{other_links}"),
        both("connections of clients that use one server each (ten each)", f"{per_server} ({per_server * 10:,})", "the same"),
        both("traffic with servers, idle, both ways", f"{figure(voter_links * of_link / 1024)} KiB/s", f"{figure(other_links * of_link / 1024)} KiB/s"),
        both("traffic with clients that wait, idle, both ways", f"{figure(line['bytes-waiting'].each * per_server / 1024)} KiB/s", "the same"),
        both("processor, idle, of one core: cluster (a line of 3 to 8 servers)", f"{figure(line['leader-cpu'].beyond(NODES) * 100)} %", f"{figure(statistics.median(idlest) * 100)} %, measured"),
        both("… clients that wait", f"{figure(client_cpu * 100)} %", "the same"),
        both("a topic is made: processor time", f"{figure(line['create-cpu'].beyond(NODES))} ms", f"{figure(statistics.median(line['create-others'].medians))} ms"),
    ]  # fmt: skip
    all_links = VOTERS * (VOTERS - 1) // 2 + VOTERS * (NODES - VOTERS)
    out += [
        "",
        "| in all | |",
        "| --- | --- |",
        f"| links between servers | {all_links:,} |",
        f"| their traffic, idle | {figure(line['links-bytes'].beyond(NODES) / mib)} MiB/s, {line['links-packets'].beyond(NODES):,.0f} packets a second |",
        f"| a topic is made: on the wire | {figure(line['create-bytes'].beyond(NODES) / 1024)} KiB |",
        f"| 100,000 clients that wait: traffic, idle | {figure(line['bytes-waiting'].each * CLIENTS / mib)} MiB/s |",
        f"| memory of 100,000 clients, in processes of 50 | {figure(line['client-memory-used'].each * CLIENTS / (1 << 30))} GiB |",
        f"| files of the shared directory opened | {opens_per_s(NODES, VOTERS):,.0f} a second |",
        f"| a start of a server with {PARTITIONS:,} partitions, alone on this disk | {figure(line['ready-10'].beyond(PARTITIONS))} s |",
        "",
    ]
    return out


def page_of(samples: list[Sample]) -> list[str]:
    model = build(samples)
    out = ["### What was asked", "", *asked(model)]
    if model.of("quota"):
        out += ["### Servers with a share of a processor each, a topic on each", "", *quota(model, "quota")]
    if model.of("spread"):
        out += ["### The same, with one topic that has a partition on each", "", *quota(model, "spread")]
    sizes = {
        "partitions": "1,000 | 3,000 | 10,000", "clients": "100 | 300 | 1,000", "servers": "3 | 5 | 8", "table": "1,000 | 3,000 | 10,000",
    }  # fmt: skip
    titles = {
        "partitions-1": "Partitions of one server, in topics of one",
        "partitions-10": "Partitions of one server, in topics of ten",
        "clients-connected": "Clients that are connected, by TCP",
        "clients-waiting": "Clients that wait for events of one topic",
        "clients-used": "Clients that have pushed and pulled an event of 1,000 B",
        "servers": "Servers of a cluster, of which three vote",
        "table-1": "The table: partitions on one of four servers, in topics of one",
        "table-10": "The table: partitions on one of four servers, in topics of ten",
    }
    for name, title in titles.items():
        if name in model.rows:
            out += [f"### {title}", "", *model.table(name, sizes[name.split("-")[0]])]
    out += ["### The shared directory", "", *opens(model)]
    out += [f"### A thousand servers, {CLIENTS:,} clients, {PARTITIONS:,} partitions", "", *extrapolated(model)]
    first, last = min(one["time"] for one in samples), max(one["time"] for one in samples)
    loads = [one["load"] for one in samples]
    commits = ", ".join(sorted({f"{one['commit']} ({one['profile']})" for one in samples}))
    out.append(f"Samples from {first} to {last}, of {commits}; load of the machine {min(loads)} to {max(loads)}.")
    return out


def draw(samples: list[Sample]) -> None:
    """Memory of a server by what it has, largest size."""
    line, mib = build(samples).lines, 1 / (1 << 20)
    bars = []
    for name, label in (
        ("started-1", "10,000 topics of one"), ("started-10", "1,000 topics of ten"), ("memory-connected", "1,000 clients, connected"),
        ("memory-waiting", "1,000 clients, waiting"), ("memory-used", "1,000 clients, used"), ("copy-1", "copy of 10,000 topics"),
        ("copy-10", "copy of 1,000 of ten"),
    ):  # fmt: skip
        cells = line[name].cells[line[name].sizes[-1]]
        bars.append((label, {"median": statistics.median(cells) * mib, "min": min(cells) * mib, "max": max(cells) * mib}))
        said = line[name].at(line[name].sizes[-1]) * mib
        bars.append(("… predicted", {"median": said, "min": said, "max": said}))
    bars = [(f"Thalweg: {label}" if not label.startswith("…") else label, value) for label, value in bars]
    plots.bars(ROOT / "docs" / "plots" / "scale.svg", "Memory of a server, idle", "MiB", bars)


def main() -> int:
    paths = [one for one in sys.argv[1:] if one != "--print"]
    path = Path(paths[0]) if paths else SAMPLES
    samples = json.loads(path.read_text())["samples"]
    figures = "\n".join(page_of(samples))
    if "--print" in sys.argv:
        print(figures)
        return 0
    page = PAGE.read_text()
    before, rest = page.split(BEGINS)
    after = rest.split(ENDS)[1]
    PAGE.write_text(f"{before}{BEGINS}\n\n{figures}\n\n{ENDS}{after}")
    draw(samples)
    return 0


if __name__ == "__main__":
    sys.exit(main())
