"""Acquisition: streams a scan from its HDF5 file, as a detector would.

Killed and started again it goes on behind what is stored: its name gives it
its identity back, and fences what may be left of the run before.
"""

from __future__ import annotations

import itertools
import sys
import time
from pathlib import Path

from component import Meter, connect, options_of, ready, report, stored
from scan import read_scan


def main() -> None:
    parser = options_of(__doc__.splitlines()[0])
    parser.add_argument("--scan", type=Path, required=True)
    parser.add_argument("--projections", type=int, help="only the first so many")
    parser.add_argument("--center", type=float, help="column of the rotation axis; the middle without it")
    parser.add_argument("--pace", type=float, default=0, help="seconds between projections")
    parser.add_argument("--hold-at", type=int, help="after so many events wait for a line on standard input")
    options = parser.parse_args()
    scan = read_scan(options.scan, options.projections, options.center)
    meter = Meter()
    with connect(options, "acquisition") as driver:
        topic = driver.open_topic("projections")
        with topic.producer(name="acquisition", batch=options.batch) as producer:
            ready(options)
            done = stored(topic)
            for index, (metadata, frame) in itertools.islice(enumerate(scan.events()), done, None):
                if index == options.hold_at:
                    sys.stdin.readline()
                if options.pace:
                    time.sleep(options.pace)
                meter.push(producer.push, metadata, frame, time=time.time_ns())
            meter.wait(producer.close)
    report(options, produce=meter)


if __name__ == "__main__":
    main()
