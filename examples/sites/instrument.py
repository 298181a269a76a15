"""The instrument at site A: takes frames at its own pace, and writes them to the server beside it.

    python instrument.py GROUP_FILE LOG [--seconds 50] [--rate 50]

Each frame is an event of topic `frames`: its number is the metadata, its data the pixels. The log has a line of JSON for
each second: how many frames were written, and the longest that one had to wait.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

import numpy as np

import thalweg

SHAPE, DTYPE = (256, 256), "uint16"
RINGS = 32


def rings(number: int) -> np.ndarray:
    """What a detector sees of a powder: rings, one of them wanders."""
    y, x = np.mgrid[0 : SHAPE[0], 0 : SHAPE[1]]
    radius = np.hypot(y - 110.0, x - 140.0)
    wanders = 55 + 18 * np.sin(2 * np.pi * number / RINGS)
    image = 200 + 6000 * np.exp(-radius / 20)
    for at, height in ((35, 3000), (wanders, 9000), (100, 2500), (128, 1800)):
        image += height * np.exp(-(((radius - at) / 2.5) ** 2))
    return image


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("group_file")
    parser.add_argument("log", type=Path)
    parser.add_argument("--seconds", type=float, default=50)
    parser.add_argument("--rate", type=float, default=50, help="frames a second")
    options = parser.parse_args()

    chance = np.random.default_rng(1)
    images = [chance.poisson(rings(number)).astype(DTYPE) for number in range(RINGS)]
    count = int(options.seconds * options.rate)
    began, longest, told = time.time(), 0.0, 0.0
    with thalweg.Driver(options.group_file, connect_timeout=60) as driver, options.log.open("w") as log:
        # The budget is what may wait in memory while the server beside it is started anew.
        with driver.open_topic("frames").producer("detector", budget_bytes=256 << 20) as producer:
            for number in range(count):
                time.sleep(max(0.0, began + number / options.rate - time.time()))
                frame = images[number % RINGS].copy()
                frame[0, :2] = number & 0xFFFF, number >> 16
                before = time.time()
                producer.push({"n": number, "taken": before}, frame)
                longest = max(longest, time.time() - before)
                if time.time() - told >= 1 or number + 1 == count:
                    log.write(json.dumps({"time": time.time(), "frames": number + 1, "longest_s": longest}) + "\n")
                    log.flush()
                    told, longest = time.time(), 0.0


if __name__ == "__main__":
    main()
