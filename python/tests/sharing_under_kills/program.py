"""What is killed and stopped: a producer, a queue's worker or a group's member.

    python program.py ROLE GROUP_FILE JOURNAL NUMBER PLACE

Each writes what it does into its own journal, a line at a time by one write, so
that a kill leaves whole lines. Times are of the machine's monotonic clock, ns.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import time
from typing import Any

import thalweg

#: One event in so many cannot be handled.
BAD_EVERY = 29
#: How long a producer rests behind ten events, s.
REST = 0.015
ending = False


def end(*_: object) -> None:
    global ending
    ending = True


def produce(driver: thalweg.Driver, journal: int, number: int, _: int) -> None:
    topics = [driver.open_topic("work"), driver.open_topic("readings")]
    producers = [topic.producer(durability="synced") for topic in topics]
    count = 0
    while not ending:
        ids = range(number * 1_000_000 + count, number * 1_000_000 + count + 10)
        count += 10
        futures = [(n, p.push({"n": n})) for n in ids for p in producers]
        for n, future in futures:
            future.result(120)
            os.write(journal, b"pushed %d\n" % n)
        # Workers confirm one event at a time, and are to keep up.
        time.sleep(REST)


def next_of(consumer: Any) -> Any:
    """The next event, if one comes soon; the server may be away, or recover."""
    try:
        return consumer.pull(timeout=0.2)
    except (thalweg.Unreachable, thalweg.Recovering):
        return None


def work(driver: thalweg.Driver, journal: int, number: int, place: int) -> None:
    chance = random.Random(number)
    queue = driver.open_topic("work").queue(
        "farm", lease=2.0, session_timeout=1.0, prefetch=1 + place % 3, deliveries_max=10_000
    )
    with queue:
        while not ending:
            event = next_of(queue)
            if event is None:
                continue
            pulled, n = time.monotonic_ns(), event.metadata["n"]
            os.write(journal, b"pulled %d %d\n" % (n, event.deliveries))
            fate = chance.random()
            settled = time.monotonic_ns()
            if n % BAD_EVERY == 0:
                done, future = b"rejected", event.reject(f"{n} is bad")
            elif fate < 0.1:
                done, future = b"returned", event.return_to_queue(0.05 * fate, "not now")
            else:
                done, future = b"acknowledged", event.acknowledge()
            try:
                future.result(120)
            except thalweg.LeaseExpired:
                continue
            os.write(journal, b"%s %d %d %d\n" % (done, n, pulled, settled))


def read(driver: thalweg.Driver, journal: int, _: int, place: int) -> None:
    # Half of them are static: whoever follows in such a place is the same member.
    instance = f"place-{place}" if place % 2 else None
    group = driver.open_topic("readings").group("readers", session_timeout=1.0, instance=instance)
    try:
        with group:
            while not ending:
                event = next_of(group)
                if event is None:
                    continue
                os.write(journal, b"read %d\n" % event.metadata["n"])
                try:
                    event.acknowledge()
                except thalweg.MemberFenced:
                    # It was stopped for longer than its session: others read on
                    # from where the group stands, and this one goes on with them.
                    continue
    except thalweg.MemberFenced:
        # The same, said when it closes of what it acknowledged last.
        assert ending, "a pull joins the group again by itself"


def main() -> None:
    role, group_file, journal, number, place = sys.argv[1:]
    signal.signal(signal.SIGTERM, end)
    lines = os.open(journal, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    with thalweg.Driver(group_file, connect_timeout=120) as driver:
        {"produce": produce, "work": work, "read": read}[role](driver, lines, int(number), int(place))


if __name__ == "__main__":
    main()
