"""Reconstruction: pulls only the rows that it needs and publishes slices.

Of every projection the data selector asks for the detector rows of the slices
being reconstructed, and only those bytes travel. Each is filtered and smeared
back over its slice (filtered back-projection: Kak and Slaney, Principles of
Computerized Tomographic Imaging, 1988, section 3.3).
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Mapping
from typing import Any

import numpy as np

import thalweg


def ramp(size: int) -> np.ndarray:
    """The ramp filter for rows of `size` samples, zero-padded to twice that."""
    return 2 * np.abs(np.fft.rfftfreq(2 * size)).astype(np.float32)


def filtered(rows: np.ndarray) -> np.ndarray:
    """Ramp-filtered detector rows: (n, size) in, (n, size) out."""
    size = rows.shape[1]
    spectrum = np.fft.rfft(rows, 2 * size, axis=1) * ramp(size)
    return np.fft.irfft(spectrum, axis=1)[:, :size].astype(np.float32)


def smear(rows: np.ndarray, angle: float) -> np.ndarray:
    """Each row spread over its slice along the ray's direction: (n, size, size)."""
    size = rows.shape[1]
    axis = np.arange(size) - (size - 1) / 2
    turn = np.deg2rad(angle)
    where = axis[None, :] * np.cos(turn) + axis[:, None] * np.sin(turn) + (size - 1) / 2
    return np.stack([np.interp(where, np.arange(size), row, 0, 0) for row in rows])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--group-file", required=True)
    parser.add_argument("--journal", required=True)
    parser.add_argument("--rows", required=True, help="slices to reconstruct, comma-separated")
    parser.add_argument("--every", type=int, default=12, help="projections between published slices")
    options = parser.parse_args()
    wanted = [int(row) for row in options.rows.split(",")]

    def select(metadata: Mapping[str, Any], data: thalweg.DataView) -> thalweg.DataView | None:
        if "end" in metadata:
            return None
        return data.rows(metadata["shape"], metadata["dtype"], wanted)

    count, latencies, bytes_read, bytes_whole = 0, [], 0, 0
    slices: np.ndarray | None = None
    with thalweg.Driver(options.group_file, connect_timeout=60) as driver:
        projections = driver.open_topic("projections")
        published = driver.open_topic("slices")
        with (
            projections.consumer("reconstruction", data=select) as consumer,
            published.producer(name="reconstruction", journal=options.journal) as producer,
        ):
            for event in consumer:
                metadata = event.metadata
                end = "end" in metadata
                if not end:
                    rows = event.numpy(metadata["dtype"], (len(wanted), metadata["shape"][1]))
                    update = smear(filtered(rows), metadata["angle"])
                    slices = update if slices is None else slices + update
                    count += 1
                    bytes_read += rows.nbytes
                    bytes_whole += int(np.prod(metadata["shape"])) * rows.itemsize
                    latencies.append(time.time() - metadata["ready"])
                if slices is not None and (end or count % options.every == 0):
                    picture = slices * (np.pi / (2 * count))
                    for number, row in enumerate(wanted):
                        producer.push(
                            {
                                "slice": row,
                                "projections": count,
                                "shape": picture[number].shape,
                                "dtype": "float32",
                                "ready": time.time(),
                                "final": end,
                                "bytes_read": bytes_read,
                                "bytes_whole": bytes_whole,
                                "latency_ms_median": 1e3 * float(np.median(latencies)),
                                "latency_ms_max": 1e3 * float(np.max(latencies)),
                            },
                            np.ascontiguousarray(picture[number], np.float32),
                        )
                    producer.flush()
                # Done with it only when what came of it is stored.
                event.acknowledge()
                if end:
                    break
    print(f"reconstruction: {count} projections, of which it needed and read {bytes_read} of {bytes_whole} bytes",
          flush=True)


if __name__ == "__main__":
    main()
