"""Acquisition: turns the sample and streams one projection per angle.

Each event's metadata says angle, shape, dtype, exposure and the time at which
the frame was ready; its data is the frame itself, sent from the array's memory.
"""

from __future__ import annotations

import argparse
import time

import numpy as np
from volume import project, volume

import thalweg


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--group-file", required=True)
    parser.add_argument("--journal", required=True, help="what the server acknowledged is written here")
    parser.add_argument("--angles", type=int, default=180)
    options = parser.parse_args()

    sample = volume()
    rng = np.random.default_rng(7)
    # Neighbouring angles tell little that is new: an interlaced order lets the
    # picture sharpen early.
    order = sorted(range(options.angles), key=lambda i: int(f"{i:08b}"[::-1], 2))
    with thalweg.Driver(options.group_file, connect_timeout=60) as driver:
        topic = driver.open_topic("projections")
        with topic.producer(name="detector", journal=options.journal) as producer:
            for index, step in enumerate(order):
                started = time.time()
                angle = 180.0 * step / options.angles
                frame = project(sample, angle)
                frame += rng.normal(0, 0.002 * frame.max(), frame.shape).astype(np.float32)
                metadata = {
                    "index": index,
                    "angle": angle,
                    "shape": frame.shape,
                    "dtype": str(frame.dtype),
                    "exposure_s": round(time.time() - started, 4),
                    "ready": time.time(),
                }
                producer.push(metadata, frame)
            producer.push({"end": True, "count": len(order)})
    print(f"acquisition: {len(order)} projections acknowledged", flush=True)


if __name__ == "__main__":
    main()
