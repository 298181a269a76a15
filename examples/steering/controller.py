"""The controller: heats each cell so that it comes near the target.

    python controller.py GROUP_FILE TARGET

It keeps nothing between two requests, so that it may be killed at any time, and
others may run beside it.
"""

from __future__ import annotations

import asyncio
import sys
from array import array

import thalweg


async def steer(consumer: thalweg.QueueConsumer, target: float) -> None:
    async for event in consumer:
        rod = event.data.cast("d")
        heating = array("d", (0.5 * (target - 20) + 2 * (target - t) for t in rod))
        # Not waited for: the next request may come meanwhile.
        event.reply({"mean": sum(rod) / len(rod)}, heating)


def main() -> None:
    group_file, target = sys.argv[1], float(sys.argv[2])
    with thalweg.Driver(group_file, connect_timeout=60) as driver:
        # A short session: what a killed controller had is soon another's.
        with driver.open_topic("steering").queue("controllers", session_timeout=1.0) as consumer:
            asyncio.run(steer(consumer, target))


if __name__ == "__main__":
    main()
