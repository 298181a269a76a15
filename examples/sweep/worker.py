"""One worker of the sweep: takes parameter sets until it is killed, or all are done.

    python worker.py GROUP_FILE IDLE_SECONDS
"""

from __future__ import annotations

import sys

import thalweg


def energy(coupling: float) -> float:
    """What is computed for one parameter set: a stand-in for a simulation."""
    if coupling < 0:
        raise ValueError(f"no ground state for a coupling of {coupling}")
    value = 1.0
    for _ in range(200):
        value -= (value**3 + value - coupling) / (3 * value**2 + 1)
    return value


def main() -> None:
    group_file, idle = sys.argv[1], float(sys.argv[2])
    with thalweg.Driver(group_file, connect_timeout=60) as driver:
        sets, results = driver.open_topic("sets"), driver.open_topic("results")
        # A short session: the set of a worker that was killed is soon another's.
        with (
            sets.queue("sweep", prefetch=1, deliveries_max=50, session_timeout=1.0) as consumer,
            results.producer() as producer,
        ):
            # Ends when no set is left, with nobody; never because the server is away.
            for event in consumer.drain(idle):
                number = event.metadata["number"]
                try:
                    value = energy(event.metadata["coupling"])
                except ValueError as error:
                    # It will not get better: there is no use in another delivery.
                    event.reject(str(error))
                    continue
                # First the result, durably, then the acknowledgement.
                producer.push({"number": number, "energy": value}).result()
                event.acknowledge().result()


if __name__ == "__main__":
    main()
