"""What TLS costs a server and its client, and how much of that is the cipher.

As a program it is the client: `tls.py GROUP_FILE ADDRESS TOPIC COUNT` produces COUNT events of 1 MiB, reads some of
them again, and prints a line of JSON for each of the two.
"""

from __future__ import annotations

import argparse
import json
import re
import resource
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

EVENT_BYTES = 1 << 20
KEPT_EVENTS, CONSUMED_EVENTS = 150, 200


def client(group_file: str, address: str, name: str, count: int) -> None:
    import thalweg

    token = json.loads(Path(group_file).read_text())["token"]
    data = bytes(at * 167 % 251 for at in range(4096)) * (EVENT_BYTES // 4096)
    with thalweg.Driver(address=address, token=token) as driver:
        topic = driver.create_topic(name, storage="memory", durability="memory", retention=f"{KEPT_EVENTS}MiB")
        with topic.producer(f"{name}-producer") as producer:

            def produce() -> None:
                for _ in range(count):
                    producer.push({}, data)
                producer.flush()

            # So that the measured ones find memory that was used before.
            for _ in range(3 * KEPT_EVENTS):
                producer.push({}, data)
            producer.flush()
            report("produce", count, produce)

        def consume() -> None:
            for index in range(2):
                each = CONSUMED_EVENTS // 2
                with topic.consumer(f"{name}-{index}", data=True, start=-each) as reader:
                    for _ in range(each):
                        event = reader.pull(60)
                        assert event is not None and len(event.data) == EVENT_BYTES

        report("consume", CONSUMED_EVENTS, consume)


def report(work: str, count: int, act: Any) -> None:
    """Says that it begins, waits to be told to, and says what it took."""
    print(json.dumps({"ready": work}), flush=True)
    sys.stdin.readline()
    before, began = used(), time.monotonic()
    act()
    took = time.monotonic() - began
    cost = {"client_cpu_s": used() - before, "bytes": count * EVENT_BYTES}
    print(json.dumps({"work": work, "seconds": took, **cost}), flush=True)


def used() -> float:
    own = resource.getrusage(resource.RUSAGE_SELF)
    return own.ru_utime + own.ru_stime


def cipher(name: str, seconds: int) -> float:
    """Bytes a second that one core encrypts in records of 16 KiB."""
    words = ["openssl", "speed", "-seconds", str(seconds), "-bytes", "16384", "-evp", name]
    said = subprocess.run(words, capture_output=True, text=True).stdout
    found = re.findall(rf"(?im)^{name}\s+([0-9.]+)k", said)
    return float(found[-1]) * 1e3 if found else 0.0


def measure(options: argparse.Namespace, stack: ExitStack, scratch: Path) -> dict[str, Any]:
    from tokens import Server
    from ways import Place, cpu_seconds

    server = Server(Place(scratch, options.thalweg, stack))
    ca = server.data / "tls" / "authority.pem"
    group = str(scratch / "thalweg.json")
    addresses = {
        "tcp": f"tcp://127.0.0.1:{server.ports['tcp']}",
        "tls": f"tls://localhost:{server.ports['tls']}?ca={ca}",
    }
    count = 100 if options.quick else 400
    seconds = 1
    ciphers = ("aes-128-gcm", "aes-256-gcm")
    rates: dict[str, list[float]] = {name: [] for name in ciphers}
    runs: list[dict[str, Any]] = []
    for repeat in range(options.repeats):
        for name in ciphers:
            rates[name].append(cipher(name, seconds))
        for transport, address in addresses.items():
            words = [options.python, __file__, group, address, f"{transport}-{repeat}", str(count)]
            asks = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            assert asks.stdin is not None and asks.stdout is not None
            for _ in ("produce", "consume"):
                ready = asks.stdout.readline()
                if "ready" not in ready:
                    raise RuntimeError(f"the client ended: {asks.wait()}")
                before = cpu_seconds(server.process.pid)
                asks.stdin.write("go\n")
                asks.stdin.flush()
                result = json.loads(asks.stdout.readline())
                result["server_cpu_s"] = cpu_seconds(server.process.pid) - before
                result |= {"transport": transport, "repeat": repeat}
                runs.append(result)
                gb = result["bytes"] / 1e9
                costs = f"{result['client_cpu_s'] / gb:.2f} + {result['server_cpu_s'] / gb:.2f} s/GB"
                print(f"{repeat}: {result['work']} {transport}: {costs}", file=sys.stderr, flush=True)
            asks.stdin.close()
            asks.wait()
    return {"cipher_bytes_per_s": rates, "runs": runs}


if __name__ == "__main__":
    client(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]))
