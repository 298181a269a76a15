"""An event as its consumer sees it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import thalweg

from thalweg_mofka.errors import ClientException, translated

if TYPE_CHECKING:
    from thalweg_mofka.consumer import Consumer

__all__ = ["Event", "NoMoreEvents"]

#: The id of an event that stands for the end of a topic, in programs in C++.
NoMoreEvents = 2**64 - 1


class Event:
    """One event: its metadata, and of its data what was selected."""

    __slots__ = ("_buffers", "_consumer", "_native", "_number")

    def __init__(
        self,
        consumer: Consumer,
        number: int,
        native: thalweg.Event | None,
        buffers: list[Any] | None = None,
    ) -> None:
        # Keeps the consumer alive, without which nothing can be acknowledged.
        self._consumer = consumer
        # Which of the consumer's events it is.
        self._number = number
        self._native = native
        self._buffers = buffers

    @property
    def metadata(self) -> Any:
        """The metadata: parsed, or for programs of the legacy dialect as JSON text."""
        if self._consumer._metadata_is_text:
            return self.metadata_text
        if self._native is None or not self._native.metadata_bytes:
            return {}
        with translated():
            return self._native.metadata

    @property
    def metadata_text(self) -> str:
        """The metadata as JSON text, in every dialect."""
        if self._native is None:
            return "{}"
        with translated():
            return self._native.metadata_bytes.decode() or "{}"

    @property
    def data(self) -> list[Any]:
        """The selected data: a list of what the allocator returned, or without
        one of a single `memoryview`.
        """
        if self._buffers is None:
            self._buffers = [self._selected()]
        return self._buffers

    def _selected(self) -> memoryview:
        """The data that came with the event: none, if none was to come."""
        try:
            return memoryview(b"") if self._native is None else self._native.data
        except thalweg.InvalidArgument:
            return memoryview(b"")

    @property
    def event_id(self) -> int | None:
        """The event's place in its partition; None stands for the end of the topic."""
        return None if self._native is None else self._native.id.offset

    @property
    def partition(self) -> dict[str, Any]:
        """The partition that the event is of, as in `TopicHandle.partitions`."""
        if self._native is None:
            return {}
        return self._consumer.topic._partition(self._native.id.partition)

    def acknowledge(self) -> None:
        """This event and all before it in its partition are done with: a consumer
        of the same name begins behind it. Never moves back. Becomes durable a
        moment later, together with others; closing the consumer, opening
        another one of that name and the end of the program wait for it.
        """
        if self._native is None:
            raise ClientException("the end of a topic is not an event that can be acknowledged")
        with translated():
            self._consumer._acknowledge(self._native)

    def __repr__(self) -> str:
        return f"Event({self.event_id}, {self.metadata!r})"
