"""Topics: their partitions, and where producers and consumers come from."""

from __future__ import annotations

import time
import uuid
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import thalweg

from thalweg_mofka.consumer import COMPLETE, Consumer, DataAllocator, DataSelector
from thalweg_mofka.errors import ClientException, translated
from thalweg_mofka.numbers import AdaptiveBatchSize
from thalweg_mofka.pool import Ordering, ThreadPool
from thalweg_mofka.producer import Producer

if TYPE_CHECKING:
    from thalweg_mofka.driver import Driver

__all__ = ["TopicHandle"]

#: Seconds between looks at a topic that has no partition yet.
_LOOK = 0.05


class TopicHandle:
    """A topic of a driver. Made by `Driver.open_topic`."""

    def __init__(self, driver: Driver, native: thalweg.Topic) -> None:
        self._driver = driver
        self._native = native

    @property
    def name(self) -> str:
        """The topic's name."""
        return self._native.name

    @property
    def driver(self) -> Driver:
        """The driver that it was opened by."""
        return self._driver

    @property
    def partitions(self) -> list[dict[str, Any]]:
        """The partitions, a dict each: `uuid`, `address`, `provider_id`, and
        Thalweg's `index`, `storage`, `durability`.
        """
        return [
            {
                **self._partition(partition.index),
                "storage": partition.storage,
                "durability": partition.durability,
            }
            for partition in self._native.partitions
        ]

    def _partition(self, index: int) -> dict[str, Any]:
        identity = uuid.uuid5(uuid.UUID(self._native.id), str(index))
        return {
            "uuid": str(identity),
            "address": self._driver._address,
            "provider_id": index,
            "index": index,
        }

    def _wait_for_partition(self, timeout: float | None) -> bool:
        """Whether the topic has a partition, or gets one within `timeout` seconds."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            # What is open of the topic has all partitions behind this.
            with translated():
                self._native.refresh()
            if self._native.partitions:
                break
            left = _LOOK if deadline is None else min(_LOOK, deadline - time.monotonic())
            if left <= 0:
                return False
            time.sleep(left)
        return True

    def producer(
        self,
        name: str = "",
        batch_size: int = AdaptiveBatchSize,
        thread_pool: ThreadPool | None = None,
        ordering: Ordering = Ordering.Strict,
        *,
        max_num_batches: int | None = None,
        max_batch: int | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> Producer:
        """Opens a producer.

        - `name`: a label. Several producers may have the same.
        - `batch_size`: events in a batch; `AdaptiveBatchSize` sends what has
          gathered as soon as the batch before it is through.
        - `max_num_batches`, `max_batch`: batches that may be pending.
        - `ordering`: whether events are stored in the order of the pushes.
        - `thread_pool`: taken and told of again; Thalweg needs none.
        - `options`: of Thalweg's: `identity`, a name under which the producer
          keeps its identity across restarts, and which fences whoever had it
          before; `ack_timeout`, `block_timeout` and `partition_wait` in seconds,
          `budget_bytes`, `durability`, `journal`, `linger_ms`; `borrow`, for data
          that is not changed before it is stored. Others are passed over.
        """
        return Producer(
            self,
            name,
            int(batch_size),
            _first(max_num_batches, max_batch, 2),
            thread_pool or self._driver.default_thread_pool,
            ordering,
            options or {},
        )

    def consumer(
        self,
        name: str,
        batch_size: int = AdaptiveBatchSize,
        thread_pool: ThreadPool | None = None,
        data_broker: DataAllocator | None = None,
        data_selector: DataSelector | None = None,
        targets: Sequence[int] | None = None,
        *,
        data_allocator: DataAllocator | None = None,
        max_num_batches: int | None = None,
        max_batch: int | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> Consumer:
        """Opens a consumer.

        - `name`: its positions are kept under it. It begins behind what was
          acknowledged under this name, for a new one at the first event (or
          where the option `start_from` says). Several consumers of one name
          each get everything.
        - `data_selector(metadata, descriptor)`: returns the descriptor of what
          is wanted of an event's data, or None. Without it: everything.
        - `data_allocator(metadata, descriptor)`, or `data_broker`: returns a
          list of writable buffers of together `descriptor.size` bytes, in which
          the data lands.
        - `targets`: indices of the partitions to read; all by default.
        - `batch_size`, `max_num_batches`, `thread_pool`: taken and told of
          again; how much is fetched ahead is bounded in bytes.
        - `options`: of Thalweg's: `start_from`, `"beginning"` or `"latest"` for
          a new name; `credit_bytes`; `inline_along`, on unless it is False:
          short data comes with its event, and the selector picks from it here,
          where otherwise nothing but what it selects travels. Others are passed over.
        """
        if name in self._driver._consumers:
            # What its predecessor here acknowledged is to count.
            self._driver._settle(name)
        consumer = Consumer(
            self,
            name,
            data_selector,
            data_allocator or data_broker,
            int(batch_size),
            _first(max_num_batches, max_batch, 2),
            thread_pool or self._driver.default_thread_pool,
            targets,
            options or {},
        )
        self._driver._remember(consumer)
        return consumer

    def mark_as_complete(self) -> None:
        """Ends the topic: consumers get an event whose id is None behind all others."""
        with translated(), self._native.producer() as producer:
            for partition in self._native.partitions:
                producer.push({}, headers={COMPLETE: b""}, tombstone=True, partition=partition.index)

    markAsComplete = mark_as_complete

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, TopicHandle):
            return NotImplemented
        return self._driver is other._driver and self._native.id == other._native.id

    def __hash__(self) -> int:
        return hash(self._native.id)

    def __reduce__(self) -> tuple[Any, ...]:
        return _opened, (self._driver, self.name)

    def __repr__(self) -> str:
        return f"TopicHandle({self.name!r})"


def _opened(driver: Driver, name: str) -> TopicHandle:
    return driver.open_topic(name)


def _first(*given: int | None) -> int:
    """The first that is not None."""
    for value in given:
        if value is not None:
            return int(value)
    raise ClientException("no value is given")
