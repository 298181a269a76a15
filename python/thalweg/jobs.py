"""Programs that are told to end: batch jobs, and whoever gets a signal."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from thalweg._thalweg import QueueConsumer

__all__ = ["winding_down_on"]


@contextmanager
def winding_down_on(
    signum: int, *consumers: QueueConsumer, within: float = 20.0
) -> Iterator[None]:
    """While the block runs, the signal lets consumers of queues wind down.

    Batch systems send ``SIGTERM`` some time before they kill (Slurm: 30 s, its
    ``KillWait``). Then nothing new is handed out, iteration over the
    consumers ends, and what they have unsettled after `within` seconds goes to
    others. A handler that was there before is called afterwards; one that would
    end the program at once is not. Python wants this to be done in the main thread.
    """

    def wind_down(number: int, frame: FrameType | None) -> None:
        for consumer in consumers:
            consumer.wind_down(within)
        if callable(before):
            before(number, frame)

    before = signal.getsignal(signum)
    signal.signal(signum, wind_down)
    try:
        yield
    finally:
        # None is a handler that was not installed from Python: it cannot be put back.
        signal.signal(signum, signal.SIG_DFL if before is None else before)
