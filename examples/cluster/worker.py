"""One worker of the farm: works tasks off until none is left.

    python worker.py GROUP_FILE JOURNAL
"""

from __future__ import annotations

import hashlib
import sys
import time

import thalweg

IDLE_S = 15.0
"""With nothing left for so long, the farm is done. Servers that are away do not count."""


def digest(number: int) -> str:
    """What is computed for one task: a stand-in for an analysis."""
    time.sleep(0.02)
    return hashlib.sha256(str(number).encode()).hexdigest()


def main() -> None:
    group_file, journal = sys.argv[1], sys.argv[2]
    with thalweg.Driver(group_file, connect_timeout=60) as driver:
        tasks, results = driver.open_topic("tasks"), driver.open_topic("results")
        with tasks.queue("farm", prefetch=4) as consumer, results.producer(journal=journal) as producer:
            for event in consumer.drain(IDLE_S):
                number = event.metadata["number"]
                # First the result, durably, then the acknowledgement.
                producer.push({"number": number, "digest": digest(number)}).result()
                event.acknowledge().result()


if __name__ == "__main__":
    main()
