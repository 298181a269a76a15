"""Producers: push and flush as each dialect has them."""

from __future__ import annotations

import base64
import math
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import thalweg

from thalweg_mofka.errors import ClientException, translated
from thalweg_mofka.futures import FutureFlushed, FutureUint
from thalweg_mofka.numbers import AdaptiveBatchSize, Count
from thalweg_mofka.pool import Ordering, ThreadPool

if TYPE_CHECKING:
    from thalweg_mofka.topic import TopicHandle

__all__ = ["Producer"]

#: Seconds that a push waits for a topic to get its first partition.
_PARTITION_WAIT = 120.0


class Producer:
    """Sends events to one topic. Made by `TopicHandle.producer`."""

    def __init__(
        self,
        topic: TopicHandle,
        name: str,
        batch_size: int,
        max_num_batches: int,
        thread_pool: ThreadPool,
        ordering: Ordering,
        options: Mapping[str, Any],
    ) -> None:
        self._topic = topic
        self._name = name
        self._batch_size = Count(batch_size)
        self._max_num_batches = Count(max_num_batches)
        self._thread_pool = thread_pool
        self._ordering = ordering
        self._options = dict(options)
        self._partition_wait = float(self._options.get("partition_wait", _PARTITION_WAIT))
        borrows = os.environ.get("THALWEG_MOFKA_BORROW") == "1"
        self._borrows = bool(self._options.get("borrow", borrows))
        self._flush_waits = topic._driver.dialect.flush_waits
        # A name is a label here: several producers of one name are several. Only
        # who asks for an identity gets one, which fences whoever had it before.
        given = {key: self._options[key] for key in ("ack_timeout", "durability", "journal",
                                                     "block_timeout", "budget_bytes", "linger_ms")
                 if key in self._options}
        adaptive = batch_size in (0, AdaptiveBatchSize)
        with translated():
            self._native: thalweg.Producer = topic._native.producer(
                self._options.get("identity"),
                batch="adaptive" if adaptive else batch_size,
                ordering="loose" if ordering is Ordering.Loose else "strict",
                batches_in_flight=min(max(max_num_batches, 4), 64),
                **given,
            )

    def push(
        self, metadata: Any, data: Any = b"", partition: int | None = None
    ) -> FutureUint:
        """Sends an event and returns the future of its id.

        `metadata` is anything that has a JSON form, or a str of JSON; bytes in
        it become base64, and what is no finite number null. `data` is a
        contiguous buffer or a list of such. It is copied, unless the producer's
        option `borrow`, or the environment's THALWEG_MOFKA_BORROW=1, says that it
        is not changed before the future is resolved or a flush is through. The
        partition asked for counts modulo the number of partitions.

        A topic without partitions is waited for. Raises `ClientException` if the
        event is refused.
        """
        if metadata is None:
            metadata = "null"
        if partition is not None:
            partition = self._wrapped(partition)
        try:
            native = self._native.push(
                metadata, data, partition=partition, borrow=self._borrows
            )
        except thalweg.Error as error:
            native = self._pushed_after_all(error, metadata, data, partition)
        return FutureUint(native)

    def _pushed_after_all(
        self, error: thalweg.Error, metadata: Any, data: Any, partition: int | None
    ) -> thalweg.Future:
        """Pushes again what Thalweg refuses and Mofka takes."""
        if isinstance(error, thalweg.InvalidEvent):
            metadata, data = _plain(metadata), _in_order(data)
            with translated():
                return self._native.push(
                    metadata, data, partition=partition, borrow=self._borrows
                )
        if isinstance(error, thalweg.UnknownPartition) and self._topic._wait_for_partition(
            self._partition_wait
        ):
            with translated():
                return self._native.push(
                    metadata, data, partition=partition, borrow=self._borrows
                )
        raise ClientException(str(error)) from error

    def _wrapped(self, partition: int) -> int:
        """The partition as the default selector understands it: modulo their number."""
        count = len(self._topic._native.partitions)
        if partition < 0:
            raise ClientException(f"there is no partition {partition}")
        return partition % count if count else partition

    def flush(self) -> FutureFlushed:
        """Sends all that was pushed.

        In the legacy and middle dialects it waits until all is stored, and
        raises if something was not; in the current one it returns at once,
        with a future that does.
        """
        if self._flush_waits:
            with translated():
                self._native.flush(None)
            return FutureFlushed()
        return self.flush_async()

    def flush_async(self) -> FutureFlushed:
        """What `flush` is in the current dialect, in all of them."""
        # Not by `translated`, which would take most of the time.
        try:
            return FutureFlushed(self._native.begin_flush())
        except thalweg.Error as error:
            raise ClientException(str(error)) from error

    def close(self, timeout_ms: float | None = None) -> None:
        """Waits until all that was pushed is stored, and takes no more events."""
        with translated():
            self._native.close(120.0 if timeout_ms is None else timeout_ms / 1000)

    @property
    def name(self) -> str:
        """The name that it was given."""
        return self._name

    @property
    def topic(self) -> TopicHandle:
        """The topic that it sends to."""
        return self._topic

    @property
    def thread_pool(self) -> ThreadPool:
        """The pool that it was given."""
        return self._thread_pool

    @property
    def batch_size(self) -> Count:
        """The number of events in a batch."""
        return self._batch_size

    @property
    def max_num_batches(self) -> Count:
        """The number of batches that may be pending."""
        return self._max_num_batches

    @property
    def ordering(self) -> Ordering:
        """In which order events are stored."""
        return self._ordering

    batchSize = batch_size
    threadPool = thread_pool

    def __enter__(self) -> Producer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        # What waits for its batch to be full is sent, though futures of it are
        # still held; the native producer drains behind this.
        native = getattr(self, "_native", None)
        if native is not None:
            try:
                native.begin_flush()
            except thalweg.Error:
                pass

    def __reduce__(self) -> tuple[Any, ...]:
        return Producer, (
            self._topic, self._name, int(self._batch_size), int(self._max_num_batches),
            self._thread_pool, self._ordering, self._options,
        )


def _plain(value: Any) -> Any:
    """Metadata as Mofka's own binding makes it JSON: keys of dicts are texts,
    bytes are base64, and what is no finite number is null."""
    if isinstance(value, bytes):
        return base64.b64encode(value).decode("ascii")
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, Mapping):
        return {key if isinstance(key, str) else str(key): _plain(entry) for key, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(entry) for entry in value]
    return value


def _in_order(data: Any) -> Any:
    """Data that is contiguous in Fortran's order, as the bytes that it is in memory."""
    if isinstance(data, (list, tuple)):
        return [_in_order(entry) for entry in data]
    try:
        view = memoryview(data)
    except TypeError:
        return data
    if view.f_contiguous and not view.c_contiguous:
        transpose = getattr(data, "transpose", None)
        # An array's transpose is the same memory, in C order.
        return transpose() if transpose is not None else view.tobytes("A")
    return data
