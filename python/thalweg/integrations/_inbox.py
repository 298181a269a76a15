"""One process's place in a queue, as long as it asks for messages."""

from __future__ import annotations

import contextlib
import threading
from dataclasses import dataclass
from time import monotonic
from typing import Any

import thalweg

_IDLE_SECONDS = 2.0
"""A process that asks for nothing so long, and has nothing, leaves the queue:
what would be sent to it goes to those who ask."""


@dataclass(frozen=True, slots=True)
class Taken:
    """A message that is this process's until it is settled."""

    event: thalweg.QueueEvent
    consumer: thalweg.QueueConsumer


class Inbox:
    """A member of a queue that joins when it is first asked, and leaves when
    nobody asks any more. May be used by several threads.
    """

    def __init__(self, topic: thalweg.Topic, name: str, **options: Any) -> None:
        self.topic = topic
        self._name = name
        # When an application ends its thinker says, not the job's end.
        self._options = {"job_end": False, **options}
        # Guards what is below; never held while waiting for a message.
        self._lock = threading.Lock()
        self._consumer: thalweg.QueueConsumer | None = None
        self._waiting = 0
        self._unsettled = 0
        self._used_at = 0.0

    def take(self, timeout: float | None = None) -> Taken | None:
        """The next message, or None if `timeout` seconds pass before there is one. A
        server that is away, or recovers, is waited for: that is no message.
        """
        with self._lock:
            consumer = self._consumer
            if consumer is None:
                consumer = self._consumer = self.topic.queue(self._name, **self._options)
                self._unsettled = 0
                watch = threading.Thread(target=self._leave_when_idle, args=(consumer,), daemon=True)
                watch.start()
            self._waiting += 1
        event = None
        try:
            event = consumer.pull(timeout)
        except (thalweg.Unreachable, thalweg.Recovering):
            # The time has passed; the caller asks again.
            event = None
        finally:
            with self._lock:
                self._waiting -= 1
                self._unsettled += event is not None
                self._used_at = monotonic()
        return Taken(event, consumer) if event is not None else None

    def settle(self, taken: Taken) -> None:
        """The message is handled: nobody gets it any more."""
        taken.event.acknowledge()
        with self._lock:
            if taken.consumer is self._consumer:
                self._unsettled -= 1
                self._used_at = monotonic()

    def discard(self, end: int) -> None:
        """Settles what lies below the offset `end` and with nobody."""
        # Apart from the member that is asked for single messages: many at a time.
        options = {**self._options, "prefetch": 256, "data": False}
        with self.topic.queue(self._name, **options) as consumer:
            while events := consumer.pull_batch(256, timeout=0.5):
                for event in events:
                    if event.id.offset < end:
                        event.acknowledge()
                    else:
                        event.return_to_queue()
                if events[-1].id.offset >= end - 1:
                    break

    def close(self) -> None:
        """Leaves the queue; what is not settled goes to others."""
        with self._lock:
            consumer, self._consumer = self._consumer, None
        if consumer is not None:
            consumer.close()

    def _leave_when_idle(self, consumer: thalweg.QueueConsumer) -> None:
        ticks = threading.Event()
        while not ticks.wait(_IDLE_SECONDS / 2):
            with self._lock:
                if self._consumer is not consumer:
                    return
                since = monotonic() - self._used_at
                if self._waiting or self._unsettled or since < _IDLE_SECONDS:
                    continue
                self._consumer = None
            # A thread that asks now joins anew.
            with contextlib.suppress(thalweg.Error):
                consumer.close()
            return
