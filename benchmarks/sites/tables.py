"""Tables of a run, in Markdown: `tables.py FILE [PAGE]` prints those of a file of results, or puts them into a page,
between its two marks."""

from __future__ import annotations

import json
import statistics
import sys
from collections.abc import Callable, Iterable
from typing import Any

NAMES = {16 << 10: "16 KiB", 1 << 20: "1 MiB"}
Runs = list[dict[str, Any]]


def spread(values: Iterable[float]) -> dict[str, float]:
    found = list(values)
    return {"median": statistics.median(found), "min": min(found), "max": max(found)}


def told(values: Iterable[float], digits: int = 0, scale: float = 1.0) -> str:
    """The median, and the least and the greatest where they are others."""
    of = {name: f"{value * scale:.{digits}f}" for name, value in spread(values).items()}
    return of["median"] if of["min"] == of["max"] else f"{of['median']} [{of['min']} to {of['max']}]"


def cell(runs: Runs, tell: Callable[[Runs], str]) -> str:
    done = [run for run in runs if run["state"] == "done"]
    if not runs:
        return ""
    if len(done) < len(runs):
        return "**stands still**" if runs[-1]["state"] == "stalled" else "**fails**"
    return tell(done)


def ways(runs: Runs) -> list[str]:
    return list(dict.fromkeys(run["way"] for run in runs))


def of(runs: Runs, **fields: Any) -> Runs:
    return [run for run in runs if all(run[key] == value for key, value in fields.items())]


def grid(runs: Runs) -> str:
    parts = []
    tells: dict[str, tuple[str, Callable[[Runs], str]]] = {
        "share": ("MB/s", lambda done: told(run["mb_per_s"] for run in done)),
        "ask": ("median round trip, ms", lambda done: told((run["p50_us"] for run in done), 2, 1e-3)),
    }
    for work, (unit, tell) in tells.items():
        for size, name in NAMES.items():
            some = of(runs, work=work, bytes_each=size)
            if not some:
                continue
            clients = sorted({run["clients"] for run in some})
            title = {"share": "Work sharing", "ask": "Feedback"}[work]
            parts += [f"### {title}, {name}, {unit}", ""]
            parts.append("| clients | " + " | ".join(str(count) for count in clients) + " |")
            parts.append("| --- |" + " --- |" * len(clients))
            for way in ways(some):
                cells = [cell(of(some, way=way, clients=count), tell) for count in clients]
                parts.append(f"| {way} | " + " | ".join(cells) + " |")
            parts.append("")
    return "\n".join(parts)


def cost(runs: Runs) -> str:
    """Processor time, of all cells with that size together; and time beside direct, and what 64 clients lose."""
    lines = ["### Processor time, s/GB: the proxies alone / with server and clients", ""]
    kinds = [(work, size) for work in ("share", "ask") for size in NAMES]
    titles = {"share": "sharing", "ask": "feedback"}
    lines.append("| | " + " | ".join(f"{titles[work]}, {NAMES[size]}" for work, size in kinds) + " |")
    lines.append("| --- |" + " --- |" * len(kinds))
    for way in ways(runs):
        cells = []
        for work, size in kinds:
            done = [run for run in of(runs, way=way, work=work, bytes_each=size) if run["state"] == "done"]
            if done:
                proxies = statistics.median(run["proxy_cpu_s_per_gb"] for run in done)
                everything = statistics.median(run["all_cpu_s_per_gb"] for run in done)
                cells.append(f"{proxies:.2f} / {everything:.2f}")
            else:
                cells.append("")
        lines.append(f"| {way} | " + " | ".join(cells) + " |")
    lines += ["", "### Time in place of direct's: × of throughput (sharing) and of the median round trip (feedback)", ""]
    clients = sorted({run["clients"] for run in runs})
    heads = [f"{titles[work]}, {NAMES[size]}, {count}" for work, size in kinds for count in (clients[0], clients[-1])]
    lines.append("| | " + " | ".join(heads) + " | 64 clients, of the best: 16 KiB, 1 MiB |")
    lines.append("| --- |" + " --- |" * (len(heads) + 1))
    for way in ways(runs):
        cells = []
        for work, size in kinds:
            for count in (clients[0], clients[-1]):
                cells.append(beside_direct(runs, way, work, size, count))
        kept = [of_the_best(runs, way, size) for size in NAMES]
        lines.append(f"| {way} | " + " | ".join(cells) + f" | {', '.join(kept)} |")
    return "\n".join(lines) + "\n"


def median(runs: Runs, key: str) -> float | None:
    values = [run[key] for run in runs if run["state"] == "done"]
    return statistics.median(values) if values and len(values) == len(runs) else None


def beside_direct(runs: Runs, way: str, work: str, size: int, clients: int) -> str:
    some = of(runs, work=work, bytes_each=size, clients=clients)
    key = "mb_per_s" if work == "share" else "p50_us"
    own, theirs = median(of(some, way=way), key), median(of(some, way="direct"), key)
    if own is None or theirs is None:
        return ""
    return f"{theirs / own if work == 'share' else own / theirs:.2f} ×"


def of_the_best(runs: Runs, way: str, size: int) -> str:
    """What the most clients get together, as a share of what the best number of clients gets."""
    some = of(runs, way=way, work="share", bytes_each=size)
    counts = sorted({run["clients"] for run in some})
    rates = {count: median(of(some, clients=count), "mb_per_s") for count in counts}
    known = [rate for rate in rates.values() if rate is not None]
    last = rates[counts[-1]] if counts else None
    return "–" if last is None else f"{last / max(known) * 100:.0f} %"


def tokens(rows: Runs) -> str:
    lines = ["### A hundred strangers a second", "", "| | of a core, TCP | of a core, TLS |", "| --- | --- | --- |"]
    for name in dict.fromkeys(row["token"] for row in rows):
        shares = [of(rows, token=name, transport=transport) for transport in ("tcp", "tls")]
        cells = [f"{share[0]['us_each'] / 100:.1f} % ({share[0]['us_each']:.0f} µs each)" for share in shares]
        lines.append(f"| {name} | {cells[0]} | {cells[1]} |")
    return "\n".join(lines) + "\n"


def tls(results: dict[str, Any]) -> str:
    lines = ["### TLS of a server on loopback, events of 1 MiB, processor time, s/GB", ""]
    rates = {name: spread(values) for name, values in results["cipher_bytes_per_s"].items()}
    lines.append("| | client | server | both | GB/s |")
    lines.append("| --- | --- | --- | --- | --- |")
    for name, rate in rates.items():
        each = 1e9 / rate["median"]
        costs = f"{each:.2f} | {each:.2f} | {2 * each:.2f} | {rate['median'] / 1e9:.2f}"
        lines.append(f"| {name} alone (openssl speed, 16 KiB) | {costs} |")
    for work in ("produce", "consume"):
        for transport in ("tcp", "tls"):
            runs = of(results["runs"], work=work, transport=transport)
            gb = runs[0]["bytes"] / 1e9
            client = told((run["client_cpu_s"] / gb for run in runs), 2)
            server = told((run["server_cpu_s"] / gb for run in runs), 2)
            both = told(((run["client_cpu_s"] + run["server_cpu_s"]) / gb for run in runs), 2)
            speed = told((gb / run["seconds"] for run in runs), 2)
            lines.append(f"| {work}, {transport}:// | {client} | {server} | {both} | {speed} |")
    return "\n".join(lines) + "\n"


def line(runs: Runs) -> str:
    lines = ["### On a line of 1 Gb/s (125 MB/s): MB/s in all / after the first three tenths", ""]
    for kind in dict.fromkeys(run["line"] for run in runs):
        some = of(runs, line=kind)
        works = list(dict.fromkeys((run["work"], run["clients"]) for run in some))
        lines.append(f"| {kind} | " + " | ".join(f"{work}, {clients}" for work, clients in works) + " |")
        lines.append("| --- |" + " --- |" * len(works))
        for way in ways(some):
            cells = []
            for work, clients in works:
                cells.append(cell(of(some, way=way, work=work, clients=clients), line_cell))
            lines.append(f"| {way} | " + " | ".join(cells) + " |")
        lines.append("")
    return "\n".join(lines)


def line_cell(done: Runs) -> str:
    text = f"{told((run['mb_per_s'] for run in done), 1)} / {told((run['steady_mb_per_s'] for run in done), 1)}"
    if "p50_us" in done[0]:
        text += f", {told((run['p50_us'] for run in done), 2, 1e-3)} ms"
    return text


def verdict(name: str, figure: str, target: str, is_met: bool) -> str:
    return f"| {name} | {figure} | {target if is_met else f'**{target}: missed**'} |"


def worst(runs: Runs, way: str, work: str, size: int) -> tuple[float, str]:
    """The most of direct's time, and at how many clients."""
    key = "mb_per_s" if work == "share" else "p50_us"
    found = []
    for clients in sorted({run["clients"] for run in runs}):
        some = of(runs, work=work, bytes_each=size, clients=clients)
        own, theirs = median(of(some, way=way), key), median(of(some, way="direct"), key)
        if own and theirs:
            found.append((theirs / own if work == "share" else own / theirs, str(clients)))
    return max(found)


def asked(results: dict[str, Any]) -> str:
    """What was asked, and what came of it."""
    lines = ["| | figure | asked |", "| --- | --- | --- |"]
    targets = {"Thalweg relay": 1.1, "Thalweg gateway": 1.3}
    short = of(results.get("line", []), line="1 Gb/s, 0.2 ms")
    for way, most in targets.items():
        for work, clients in (("share", 1), ("share", 64), ("ask", 16)):
            some = of(short, work=work, clients=clients)
            key = "p50_us" if work == "ask" else "mb_per_s"
            own, theirs = median(of(some, way=way), key), median(of(some, way="direct"), key)
            if own and theirs:
                times = own / theirs if work == "ask" else theirs / own
                what = "throughput" if work == "share" else "round trip of 16 KiB"
                name = f"{way}, line of 1 Gb/s, {what}, {clients} clients"
                lines.append(verdict(name, f"{times:.2f} × direct", f"{most} ×", times <= most))
    runs = results.get("grid", [])
    for way, most in targets.items():
        for work, what in (("share", "throughput"), ("ask", "round trip")):
            for size, name in NAMES.items():
                if of(runs, way=way, work=work, bytes_each=size):
                    times, where = worst(runs, way, work, size)
                    title = f"{way}, loopback, {what}, {name}, worst ({where} clients)"
                    lines.append(verdict(title, f"{times:.1f} × direct", f"{most} ×", times <= most))
        for size, name in NAMES.items():
            kept = of_the_best(runs, way, size) if runs else "–"
            if kept != "–":
                title = f"{way}, 64 clients of the best number, {name}"
                lines.append(verdict(title, kept, "90 %", float(kept[:-2]) >= 90))
    for kind in ("1 Gb/s, 50 ms", "1 Gb/s, 50 ms, 1 in 500 lost"):
        for run in of(results.get("line", []), line=kind, way="Thalweg relay"):
            if run["state"] == "done":
                steady, whole = run["steady_mb_per_s"] / 1.25, run["mb_per_s"] / 1.25
                title = f"relay, 8 connections, {run['clients']} streams, {kind}"
                figure = f"{steady:.0f} % of the line, {whole:.0f} % from the first byte on"
                lines.append(verdict(title, figure, "90 %", steady >= 90))
    for transport in ("tcp", "tls"):
        rows = of(results.get("tokens", []), transport=transport)
        silent = [row["us_each"] for row in rows if row["token"] == "nobody speaks"]
        wrong = [row for row in rows if row["token"] not in ("nobody speaks", "a good token")]
        if wrong and silent:
            dearest = max(wrong, key=lambda row: float(row["us_each"]))
            share, more = dearest["us_each"] / 100, (dearest["us_each"] - silent[0]) / 100
            title = f"100 wrong tokens a second, {transport}://, the dearest ({dearest['token']})"
            figure = f"{share:.1f} % of a core; {more:.1f} % more than connections that say nothing"
            lines.append(verdict(title, figure, "1 %", share < 1))
    return "\n".join(lines) + "\n"


def page(results: dict[str, Any]) -> str:
    parts = ["### What was asked", "", asked(results)]
    if "grid" in results:
        parts += [grid(results["grid"]), cost(results["grid"])]
    for name, tell in (("line", line), ("tls", tls), ("tokens", tokens)):
        if name in results:
            parts.append(tell(results[name]))
    took = ", ".join(f"{part} {seconds:.0f} s" for part, seconds in results["took_s"].items())
    loads = f"load {results['load_before'][0]:.1f} before, {results.get('load_after', [0])[0]:.1f} behind"
    parts.append(f"Run of {results['date']}, {results['commit']}, {loads}; {took}.")
    return "\n".join(parts) + "\n"


BEGIN, END = "<!-- figures: benchmarks/sites/tables.py -->", "<!-- end of figures -->"


def put(text: str, path: str) -> None:
    """Puts the text into a page between its two marks."""
    with open(path) as file:
        before, _, rest = file.read().partition(BEGIN)
    _, _, after = rest.partition(END)
    with open(path, "w") as file:
        file.write(f"{before}{BEGIN}\n\n{text}\n{END}{after}")


if __name__ == "__main__":
    with open(sys.argv[1]) as file:
        told_here = page(json.load(file))
    if len(sys.argv) > 2:
        put(told_here, sys.argv[2])
    else:
        print(told_here)
