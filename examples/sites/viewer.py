"""The viewer at site B: sees the frames of the mirror as they come.

    python viewer.py GROUP_FILE OUTPUT COUNT

Writes a line of JSON for each frame (its number, offset, when it was taken and when it came) to `viewer.log` in OUTPUT, and
every 25th frame to `frames.npy`.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

import numpy as np
from instrument import DTYPE, SHAPE

import thalweg


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("group_file")
    parser.add_argument("output", type=Path)
    parser.add_argument("count", type=int)
    options = parser.parse_args()

    kept = []
    with thalweg.Driver(options.group_file, connect_timeout=60) as driver:
        while not driver.topic_exists("frames"):
            time.sleep(0.05)
        with driver.open_topic("frames").consumer("viewer") as consumer, (options.output / "viewer.log").open("w") as log:
            for _ in range(options.count):
                event = consumer.pull()
                number = event.metadata["n"]
                image = event.numpy(DTYPE, SHAPE)
                if number % 25 == 0:
                    kept.append(image.copy())
                line = {"n": number, "offset": event.id.offset, "taken": event.metadata["taken"], "came": time.time()}
                log.write(json.dumps(line) + "\n")
                event.acknowledge()
    np.save(options.output / "frames.npy", np.stack(kept))


if __name__ == "__main__":
    main()
