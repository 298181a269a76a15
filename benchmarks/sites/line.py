"""A line of a rate and a length between two sites: what gets through, by which way. Needs root."""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from ways import VERIFIED, Place, Way, certificate, end, gateway, haproxy, listens

SITES = Path(__file__).resolve().parents[2] / "examples" / "sites"
HAS_SITES = (SITES / "namespaces.py").exists()
if HAS_SITES:
    sys.path.append(str(SITES))
    from namespaces import B_INSIDE, B_OUTSIDE, TwoSites
    from namespaces import missing as missing_sites

MESSAGE_BYTES = 1 << 20
RATE_BYTES_PER_S = 125_000_000
NETWORK = 0x40000000

# The delay of a packet one way, milliseconds, and one in how many is lost.
LINES = {"1 Gb/s, 50 ms": (25.0, 0), "1 Gb/s, 50 ms, 1 in 500 lost": (25.0, 500), "1 Gb/s, 0.2 ms": (0.1, 0)}


def missing() -> str:
    """Why there can be no line here; empty if there can."""
    return missing_sites() if HAS_SITES else f"there is no {SITES}/namespaces.py"


@contextmanager
def within(sites: TwoSites, site: str) -> Iterator[None]:
    """What this thread makes meanwhile, sockets and processes, is in that site."""
    name = sites.inside(site)[3]
    libc = ctypes.CDLL(None, use_errno=True)

    def enter(path: str) -> None:
        with open(path) as namespace:
            if libc.setns(namespace.fileno(), NETWORK) != 0:
                raise OSError(ctypes.get_errno(), f"setns: {path}")

    before = f"/proc/{os.getpid()}/task/{ctypes.CDLL(None).gettid()}/ns/net"
    with open(before) as home:
        enter(f"/var/run/netns/{name}")
        try:
            yield
        finally:
            libc.setns(home.fileno(), NETWORK)


Reach = Callable[["TwoSites", Place, int, str], Way]


def direct(sites: TwoSites, place: Place, port: int, load: str) -> Way:
    """A server of its own at the one port that the firewall lets in."""
    with within(sites, "b"):
        server = subprocess.Popen([load, "serve", B_INSIDE, "443"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        place.stack.callback(end, server)
        assert server.stdout is not None
        server.stdout.readline()
    return Way(443, host=B_OUTSIDE)


def relay(sites: TwoSites, place: Place, port: int, load: str) -> Way:
    with within(sites, "b"):
        words = ["relay", "offer", f"load=127.0.0.1:{port}", "--listen", "0.0.0.0:443", "--name", B_OUTSIDE, "--json"]
        offer = place.start("offer", [place.thalweg, *words])
        code = place.said("offer", "join", offer)
    with within(sites, "a"):
        join = place.start("join", [place.thalweg, "relay", "join", code, "--json"])
        address = place.said("join", "address", join)
    return Way(int(address.rpartition(":")[2]), {"offer": offer.pid, "join": join.pid})


def haproxy_tls(sites: TwoSites, place: Place, port: int, load: str) -> Way:
    certificate(place)
    far_lines = f"listen far\n    bind {B_INSIDE}:443 ssl crt both.pem\n    server load 127.0.0.1:{port}\n"
    near_lines = (
        f"listen near\n    bind 127.0.0.1:6000\n"
        f"    server far {B_OUTSIDE}:443 {VERIFIED}\n"
    )
    with within(sites, "b"):
        processes = {"far": haproxy(place, "far", far_lines)}
        place.until("far", lambda: listens(443))
    with within(sites, "a"):
        processes["near"] = haproxy(place, "near", near_lines)
        place.until("near", lambda: listens(6000))
    return Way(6000, processes)


def through_gateway(sites: TwoSites, place: Place, port: int, load: str) -> Way:
    with within(sites, "b"):
        way = gateway(place, port, f"{B_INSIDE}:443", B_OUTSIDE)
    return Way(443, way.processes, way.prefix, B_OUTSIDE)


WAYS: dict[str, tuple[Reach, tuple[str, ...]]] = {
    "direct": (direct, tuple(LINES)),
    "Thalweg relay": (relay, tuple(LINES)),
    "HAProxy, TLS": (haproxy_tls, tuple(LINES)),
    "Thalweg gateway": (through_gateway, ("1 Gb/s, 0.2 ms",)),
}


def measure(options: argparse.Namespace, stack: ExitStack, scratch: Path) -> list[dict[str, Any]]:
    seconds = 1.5 if options.quick else 5.0
    runs: list[dict[str, Any]] = []
    for at, (kind, (delay_ms, lose_one_in)) in enumerate(LINES.items()):
        is_long = delay_ms > 1
        if options.quick and not is_long:
            break
        for repeat in range(1 if is_long else options.repeats):
            for number, (name, (reach, where)) in enumerate(WAYS.items()):
                if kind not in where or (options.quick and not name.startswith("Thalweg")):
                    continue
                # New sites for each: no connection of another way has taught the line anything.
                with ExitStack() as of_this, TwoSites(delay_ms=delay_ms, lose_one_in=lose_one_in) as sites:
                    place = Place(scratch / f"{at}-{number}-{repeat}", options.thalweg, of_this)
                    runs += one(options, sites, place, kind, name, reach, seconds if is_long else seconds / 4)
    return runs


def one(
    options: argparse.Namespace, sites: TwoSites, place: Place, kind: str, name: str, reach: Reach, seconds: float
) -> list[dict[str, Any]]:
    load = str(options.load)
    with within(sites, "b"):
        server = subprocess.Popen([load, "serve"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        place.stack.callback(end, server)
        assert server.stdout is not None
        port = int(server.stdout.readline())
    way = reach(sites, place, port, load)
    runs = []
    works = [("share", 1), ("share", 8)]
    if kind.endswith("0.2 ms"):
        works = [("share", 1), ("share", 16), ("share", 64), ("ask", 16)]
    for work, clients in works:
        size = MESSAGE_BYTES if work == "share" else 16 << 10
        count = max(2 * clients, round(RATE_BYTES_PER_S * seconds / size))
        words = [load, work, way.host, str(way.port), str(clients), str(size), str(count)]
        words += [way.prefix] if way.prefix else []
        before = way.cpu()
        with within(sites, "a"):
            done = subprocess.run(words, capture_output=True, text=True, timeout=120)
        result: dict[str, Any] = {"state": f"failed: {done.stderr.strip()}"}
        if done.returncode == 0:
            result = json.loads(done.stdout)
        used = {key: value - before[key] for key, value in way.cpu().items()}
        if result["state"] == "done":
            result["mb_per_s"] = result["bytes"] / 1e6 / result["seconds"]
        asked = {"line": kind, "way": name, "work": work, "clients": clients, "bytes_each": size}
        runs.append(asked | {"proxy_cpu_s": used} | result)
        rates = [result.get(key, 0.0) for key in ("mb_per_s", "steady_mb_per_s", "p50_us")]
        told = "{:.1f} MB/s, steady {:.1f}, {:.0f} us".format(*rates)
        print(f"{kind}: {name}: {work} x {clients}: {told}, {result['state']}", file=sys.stderr, flush=True)
    return runs
