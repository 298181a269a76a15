"""A program at site A that uses the server of site B itself, through a tunnel: motor positions, twenty a second.

    python motor.py ADDRESS TOKEN_FILE LOG SECONDS

Each position is acknowledged by site B before the next one is sent; the log has a line of JSON for each: its number, when it was
sent, and how long the acknowledgement took, seconds. It knows nothing of the tunnel: ADDRESS is one of its own host.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from pathlib import Path

import thalweg


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("address")
    parser.add_argument("token_file")
    parser.add_argument("log", type=Path)
    parser.add_argument("seconds", type=float)
    options = parser.parse_args()

    began = time.time()
    with (
        thalweg.Driver(address=options.address, credential=options.token_file, connect_timeout=60) as driver,
        options.log.open("w") as log,
    ):
        with driver.open_topic("motors").producer("motors", ack_timeout=600) as producer:
            number = 0
            while time.time() - began < options.seconds:
                sent = time.time()
                producer.push({"n": number, "angle": round(math.sin(number / 40), 4)}).result()
                log.write(json.dumps({"n": number, "sent": sent, "took": time.time() - sent}) + "\n")
                log.flush()
                number += 1
                time.sleep(max(0.0, 0.05 - (time.time() - sent)))


if __name__ == "__main__":
    main()
