"""Consumers: pulls that get events in their order, and selectors and allocators
as programs write them.
"""

from __future__ import annotations

import contextlib
import heapq
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import wait
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

import thalweg

from thalweg_mofka.descriptor import DataDescriptor
from thalweg_mofka.errors import ClientException, translated
from thalweg_mofka.event import Event
from thalweg_mofka.forks import renewed_after_fork
from thalweg_mofka.futures import FutureEvent
from thalweg_mofka.numbers import Count
from thalweg_mofka.pool import ThreadPool

if TYPE_CHECKING:
    from thalweg_mofka.topic import TopicHandle

__all__ = ["ByteArrayAllocator", "Consumer", "FullDataSelector", "StopEventProcessor"]

DataSelector: TypeAlias = Callable[[Any, DataDescriptor], DataDescriptor | None]
DataAllocator: TypeAlias = Callable[[Any, DataDescriptor], Sequence[Any]]

#: Milliseconds after which iteration ends when no event comes.
_ITERATION_MS = 5000
#: Seconds that letting go of a consumer waits for its acknowledgements.
_LAST_ACKNOWLEDGEMENTS = 10.0
#: Options that are passed on as they are.
_NATIVE_OPTIONS = ("credit_bytes", "inline_along")
#: The header of the tombstone that ends a partition: `TopicHandle.mark_as_complete`.
COMPLETE = "thalweg-mofka-complete"


def FullDataSelector(metadata: Any, descriptor: DataDescriptor) -> DataDescriptor:
    """Selects all data of every event."""
    return descriptor


def ByteArrayAllocator(metadata: Any, descriptor: DataDescriptor) -> list[bytearray]:
    """A `bytearray` for the data of each event."""
    return [bytearray(descriptor.size)]


class _Gathered(bytearray):
    """Where the data of an event lands whose allocator gave several buffers, to
    which it is copied then.
    """

    __slots__ = ("buffers",)
    buffers: list[Any]


class StopEventProcessor(Exception):
    """Raised by a processor that has seen enough: `Consumer.process` returns."""


class Consumer:
    """Receives the events of a topic. Made by `TopicHandle.consumer`."""

    def __init__(
        self,
        topic: TopicHandle,
        name: str,
        data_selector: DataSelector | None,
        data_allocator: DataAllocator | None,
        batch_size: int,
        max_num_batches: int,
        thread_pool: ThreadPool,
        targets: Sequence[int] | None,
        options: Mapping[str, Any],
    ) -> None:
        self._topic = topic
        self._name = name
        self._selector = data_selector
        self._allocator = data_allocator
        self._batch_size = Count(batch_size)
        self._max_num_batches = Count(max_num_batches)
        self._thread_pool = thread_pool
        self._targets = list(targets) if targets else None
        self._options = dict(options)
        self._metadata_is_text = topic._driver.dialect.metadata_is_text
        self._native = self._open()
        self._has_partition = False
        self._unflushed = False
        # Guarded by the condition: pulls that wait for an event, in order; events
        # that were given back; whether somebody is pulling for all.
        self._waiting: deque[weakref.ref[FutureEvent]] = deque()
        self._returned: list[tuple[int, Event]] = []
        self._pulling = False
        # Only touched by whoever pulls for all: the event that is being looked at,
        # which stays there if its allocator raises; the partitions that have ended;
        # how many events there were.
        self._held: thalweg.Event | None = None
        self._complete: set[int] = set()
        self._count = 0
        # Events that futures gave back. Futures end anywhere, so without a lock.
        self._dropped: deque[Event] = deque()
        self._renew()
        renewed_after_fork(self)

    def _renew(self) -> None:
        self._changed = threading.Condition()
        self._pulling = False

    def _open(self) -> thalweg.Consumer:
        data: Any = True
        allocator: Any = None
        if self._selector is not None or self._allocator is not None:
            # Functions that know nothing of this object: a native consumer that
            # held it would never be let go of.
            if self._selector not in (None, FullDataSelector):
                data = partial(_select, self._topic.name, self._selector)
            allocator = partial(_allocate, self._topic.name, self._allocator or ByteArrayAllocator)
        # Selectors of such programs mostly want all of short data, or none at
        # all: to ask the server for each costs more than to pick here.
        given: dict[str, Any] = {"inline_along": True}
        given |= {name: self._options[name] for name in _NATIVE_OPTIONS if name in self._options}
        with translated():
            return self._topic._native.consumer(
                self._name,
                start=self._topic._driver._start(self._options),
                partitions=self._targets,
                data=data,
                allocator=allocator,
                **given,
            )

    def _buffers(self, native: thalweg.Event) -> list[Any] | None:
        """What the allocator returned for an event, filled."""
        if self._allocator is None and self._selector is None:
            return None
        whole = native.buffer
        if whole is None:
            # Nothing was selected: there is an empty buffer all the same.
            allocate = self._allocator or ByteArrayAllocator
            return list(allocate(native.metadata, DataDescriptor(self._topic.name, 0)))
        if not isinstance(whole, _Gathered):
            return [whole]
        position = 0
        for buffer in whole.buffers:
            piece = memoryview(buffer).cast("B")
            piece[:] = memoryview(whole)[position : position + piece.nbytes]
            position += piece.nbytes
        return whole.buffers

    # Pulls.

    def pull(self) -> FutureEvent:
        """The future of the next event. Returns at once."""
        future = FutureEvent(self)
        with self._changed:
            waiting = self._waiting
            while waiting and not _waits(waiting[0]()):
                waiting.popleft()
            waiting.append(weakref.ref(future))
        return future

    def _resolve(self, future: FutureEvent, timeout: float | None) -> None:
        """Pulls until `future` has its event, or `timeout` seconds have passed."""
        deadline = None if timeout is None else time.monotonic() + timeout
        changed = self._changed
        changed.acquire()
        try:
            if future._stands_back:
                future._stands_back = False
                self._waiting.appendleft(weakref.ref(future))
            while future._event is None:
                if self._dropped:
                    self._take_back()
                if self._returned:
                    self._hand(heapq.heappop(self._returned)[1])
                    continue
                left = None if deadline is None else max(0.0, deadline - time.monotonic())
                if self._pulling:
                    # Somebody pulls already, for all who wait.
                    if left == 0.0 or not changed.wait(left):
                        return
                    continue
                self._pulling = True
                changed.release()
                event = None
                try:
                    event = self._next(left)
                finally:
                    changed.acquire()
                    self._pulling = False
                    if event is not None:
                        self._hand(event)
                    changed.notify_all()
                if event is None:
                    return
        finally:
            if future._event is None:
                future._stands_back = True
                with contextlib.suppress(ValueError):
                    self._waiting.remove(weakref.ref(future))
            changed.release()

    def _next(self, timeout: float | None) -> Event | None:
        """The next event of all, or None when the time has passed."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            if not self._has_partition:
                # Nobody is asked where there is one: the server may be gone.
                if not self._native.partitions and not self._topic._wait_for_partition(timeout):
                    return None
                self._has_partition = True
            if self._held is None:
                try:
                    self._held = self._native.pull(timeout)
                except (thalweg.Unreachable, thalweg.Recovering):
                    # A future says only that its event has not come yet.
                    return None
            native = self._held
            if native is None:
                return None
            if not native.tombstone or all(name != COMPLETE for name, _ in native.headers):
                event = Event(self, self._count, native, self._buffers(native))
                self._held = None
                self._count += 1
                return event
            self._held = None
            self._complete.add(native.id.partition)
            if self._complete.issuperset(self._native.partitions):
                self._count += 1
                return Event(self, self._count - 1, None)
            if deadline is not None:
                timeout = max(0.0, deadline - time.monotonic())

    def _hand(self, event: Event) -> None:
        """Gives an event to the first pull that still waits."""
        while self._waiting:
            future = self._waiting.popleft()()
            if future is not None and _waits(future):
                future._event = event
                return
        # Whoever pulled has gone meanwhile.
        heapq.heappush(self._returned, (event._number, event))

    def _give_back(self, event: Event) -> None:
        """Takes an event that nobody took. Called from finalizers."""
        self._dropped.append(event)

    def _take_back(self) -> None:
        while self._dropped:
            event = self._dropped.popleft()
            heapq.heappush(self._returned, (event._number, event))

    def process(
        self,
        processor: Callable[[Event], Any],
        thread_pool: ThreadPool | None = None,
        max_events: int | None = None,
        *,
        timeout_ms: float = -1,
    ) -> None:
        """Calls `processor(event)` for event after event, on the threads of
        `thread_pool`, until no event comes for `timeout_ms`, the topic ends,
        `max_events` were processed, or the processor raises
        `StopEventProcessor`. Any other exception is raised here.
        """
        pool = thread_pool or self._thread_pool
        running: deque[Any] = deque()
        count = 0
        try:
            while max_events is None or count < max_events:
                event = self.pull().wait(timeout_ms)
                if event is None or event.event_id is None:
                    break
                count += 1
                running.append(pool.run(partial(processor, event)))
                while running and (running[0].done() or len(running) > 2 * pool.thread_count):
                    running.popleft().result()
            while running:
                running.popleft().result()
        except StopEventProcessor:
            pass
        finally:
            wait(running)

    def __iter__(self) -> Iterator[Event]:
        """Iterates over the events until none comes for 5 seconds, or the topic ends."""
        while True:
            event = self.pull().wait(_ITERATION_MS)
            if event is None or event.event_id is None:
                return
            yield event

    # Acknowledgements.

    def _acknowledge(self, native: thalweg.Event) -> None:
        self._unflushed = True
        native.acknowledge()

    def _settle(self, timeout: float) -> None:
        """Waits until what was acknowledged is durable."""
        if self._unflushed:
            self._unflushed = False
            self._native.flush(timeout)

    def close(self, timeout_ms: float | None = None) -> None:
        """Waits until what was acknowledged is durable, and ends the subscription."""
        with translated():
            self._native.close(120.0 if timeout_ms is None else timeout_ms / 1000)
        self._unflushed = False

    @property
    def name(self) -> str:
        """The name under which its positions are kept."""
        return self._name

    @property
    def topic(self) -> TopicHandle:
        """The topic that it reads."""
        return self._topic

    @property
    def thread_pool(self) -> ThreadPool:
        """The pool that it was given."""
        return self._thread_pool

    @property
    def data_selector(self) -> DataSelector | None:
        """What chooses the bytes of each event that are read."""
        return self._selector

    @property
    def data_allocator(self) -> DataAllocator | None:
        """What gives the memory that they are read to."""
        return self._allocator

    @property
    def batch_size(self) -> Count:
        """The number of events in a batch."""
        return self._batch_size

    @property
    def max_num_batches(self) -> Count:
        """The number of batches that may wait here."""
        return self._max_num_batches

    data_broker = data_allocator
    batchSize = batch_size
    dataSelector = data_selector
    dataBroker = data_allocator
    threadPool = thread_pool

    def __enter__(self) -> Consumer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        if getattr(self, "_unflushed", False):
            try:
                self._settle(_LAST_ACKNOWLEDGEMENTS)
            except thalweg.Error:
                # Nobody is left to be told; the events come again.
                pass

    def __reduce__(self) -> tuple[Any, ...]:
        return Consumer, (
            self._topic, self._name, self._selector, self._allocator, int(self._batch_size),
            int(self._max_num_batches), self._thread_pool, self._targets, self._options,
        )


def _waits(future: FutureEvent | None) -> bool:
    return future is not None and future._event is None and not future._stands_back


# Called by Thalweg, on the thread that pulls.


def _select(
    location: str, selector: DataSelector, metadata: Any, view: thalweg.DataView
) -> thalweg.DataView | None:
    """What a program's selector wants of an event, as a view of Thalweg's."""
    whole = DataDescriptor(location, view.nbytes)
    wanted = selector(metadata, whole)
    if wanted is None:
        return None
    if not isinstance(wanted, DataDescriptor):
        raise ClientException(f"a data selector returns a DataDescriptor or None, not {wanted!r}")
    if wanted is whole:
        return view
    parts = wanted.flatten()
    return view.segments(
        [(offset, min(size, view.nbytes - offset)) for offset, size in parts if offset < view.nbytes]
    )


def _allocate(
    location: str, allocator: DataAllocator, metadata: Any, view: thalweg.DataView
) -> Any:
    """The memory that a program's allocator gives, in one piece."""
    buffers = list(allocator(metadata, DataDescriptor._made(location, view.parts)))
    sizes = [memoryview(buffer).nbytes for buffer in buffers]
    if sum(sizes) != view.nbytes:
        raise ClientException(
            f"the allocator gave {sum(sizes)} bytes in {len(sizes)} buffers for {view.nbytes} bytes of data"
        )
    if len(buffers) == 1:
        return buffers[0]
    gathered = _Gathered(view.nbytes)
    gathered.buffers = buffers
    return gathered
