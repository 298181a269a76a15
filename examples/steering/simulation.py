"""One simulation: a rod whose cells cool down, and are heated as a controller says.

    python simulation.py GROUP_FILE NAME STEPS

At every step it asks, with the temperatures as data, and gets the heating of
each cell, as data too. In the end it waits to be asked for its report.
"""

from __future__ import annotations

import sys
import time
from array import array

import thalweg

CELLS = 64
ROOM = 20.0


def main() -> None:
    group_file, name, steps = sys.argv[1], sys.argv[2], int(sys.argv[3])
    with thalweg.Driver(group_file, connect_timeout=60) as driver:
        steering, orders = driver.open_topic("steering"), driver.open_topic("orders")
        with (
            orders.consumer("simulations", start="latest") as consumer,
            steering.requester() as requester,
        ):
            rod = array("d", (ROOM + cell for cell in range(CELLS)))
            round_trips = array("d")
            for step in range(steps):
                begin = time.perf_counter()
                asked = requester.request({"simulation": name, "step": step}, rod, timeout=120)
                heating = asked.result().data.cast("d")
                round_trips.append(time.perf_counter() - begin)
                # The request holds the memory of `rod`: what follows is another array.
                cooled = (t - 0.05 * (t - ROOM) + 0.1 * h for t, h in zip(rod, heating))
                rod = array("d", cooled)
            order = consumer.pull(timeout=120)
            assert order is not None and order.metadata == {"report": True}
            report = {"simulation": name, "coldest": min(rod), "hottest": max(rod)}
            order.reply(report, round_trips).result()


if __name__ == "__main__":
    main()
