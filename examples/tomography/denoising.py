"""Denoising: slices become pictures, as bytes that a screen can show.

Partition i holds rank i's pictures, one for each event of its slices: again
what is stored says how far this component came.
"""

from __future__ import annotations

import time

from component import Meter, Settling, connect, is_over, options_of, ready, report, stored
from sirt import denoised


def main() -> None:
    parser = options_of(__doc__.splitlines()[0])
    options = parser.parse_args()
    consume, produce = Meter(), Meter()
    with connect(options, "denoising") as driver:
        slices_topic, pictures_topic = driver.open_topic("slices"), driver.open_topic("pictures")
        ranks = len(slices_topic.partitions)
        with pictures_topic.producer(name="denoising", batch=options.batch) as producer:
            done = [stored(pictures_topic, rank) for rank in range(ranks)]
            consumer = slices_topic.consumer("denoising")
            for rank in range(ranks):
                consumer.seek(rank, done[rank])
            ready(options)
            open_ranks = {rank for rank in range(ranks) if not is_over(pictures_topic, rank)}
            settling = {rank: Settling(consumer) for rank in range(ranks)}
            while open_ranks:
                event = consume.pull(consumer)
                metadata, rank = event.metadata, event.id.partition
                if "end" in metadata:
                    settling[rank].add(event.id, [producer.push(metadata, partition=rank, time=time.time_ns())])
                    open_ranks.discard(rank)
                    continue
                picture, low, high = denoised(event.numpy(metadata["dtype"], metadata["shape"]))
                future = produce.push(
                    producer.push,
                    {
                        "type": "picture",
                        "step": metadata["step"],
                        "projections": metadata["projections"],
                        "rank": rank,
                        "shape": picture.shape,
                        "dtype": "uint8",
                        "low": low,
                        "high": high,
                    },
                    picture,
                    partition=rank,
                    time=time.time_ns(),
                )
                settling[rank].add(event.id, [future])
            produce.wait(producer.close)
            for one in settling.values():
                one.finish()
            consume.wait(consumer.close)
    report(options, consume=consume, produce=produce)


if __name__ == "__main__":
    main()
