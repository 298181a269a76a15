"""What `push`, `flush` and `pull` return.

`wait` takes milliseconds, by position or by name: a negative number waits for
as long as it takes, 0 looks without waiting. Waiting again says the same again.
What timed out may be waited for again; nothing is lost.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import thalweg

from thalweg_mofka.errors import ClientException, translated
from thalweg_mofka.numbers import Flag

if TYPE_CHECKING:
    from thalweg_mofka.consumer import Consumer
    from thalweg_mofka.event import Event

__all__ = ["FutureEvent", "FutureFlushed", "FutureUint"]


def seconds(timeout_ms: float | None) -> float | None:
    """The timeout as Thalweg takes it; None waits for ever."""
    return None if timeout_ms is None or timeout_ms < 0 else timeout_ms / 1000


class FutureUint:
    """The id of a pushed event, once it is stored."""

    __slots__ = ("_native",)

    def __init__(self, native: thalweg.Future) -> None:
        self._native = native

    def wait(self, timeout_ms: float | None = -1) -> int | None:
        """The event's id in its partition; None if the time passes first.

        Raises `ClientException` if the event was not stored.
        """
        try:
            return self._native.result(seconds(timeout_ms)).offset
        except thalweg.Timeout as error:
            if not self._native.done():
                return None
            raise ClientException(str(error)) from error
        except thalweg.Error as error:
            raise ClientException(str(error)) from error

    @property
    def completed(self) -> Flag:
        """Whether the outcome is known."""
        return Flag(self._native.done())


class FutureFlushed:
    """Resolved once all that was pushed before the flush is stored."""

    __slots__ = ("_native",)

    def __init__(self, native: thalweg.Future[None] | None = None) -> None:
        self._native = native

    def wait(self, timeout_ms: float | None = -1) -> bool:
        """True once all is stored; False if the time passes first.

        Raises `ClientException` if some event was not stored.
        """
        if self._native is None:
            return True
        try:
            self._native.result(seconds(timeout_ms))
        except thalweg.Error as error:
            if isinstance(error, thalweg.Timeout) and not self._native.done():
                return False
            raise ClientException(str(error)) from error
        return True

    @property
    def completed(self) -> Flag:
        """Whether the outcome is known."""
        return Flag(self._native is None or self._native.done())


class FutureEvent:
    """The next event of a consumer, for whoever waits.

    Futures of one consumer get events in the order in which they were pulled.
    One whose wait has timed out or failed stands back until it is waited for
    again, and one that is let go of before its event was taken leaves it to the
    next: no event is lost to a pull that nobody looks at any more.
    """

    __slots__ = ("__weakref__", "_consumer", "_event", "_stands_back", "_taken")

    def __init__(self, consumer: Consumer) -> None:
        self._consumer = consumer
        self._event: Event | None = None
        self._stands_back = False
        self._taken = False

    def wait(self, timeout_ms: float | None = -1) -> Event | None:
        """The event; None if the time passes before there is one."""
        if self._event is None:
            with translated():
                self._consumer._resolve(self, seconds(timeout_ms))
        self._taken = self._event is not None
        return self._event

    @property
    def completed(self) -> Flag:
        """Whether there is an event for `wait` to return at once."""
        if self._event is None:
            with translated():
                self._consumer._resolve(self, 0.0)
        return Flag(self._event is not None)

    def __del__(self) -> None:
        if self._event is not None and not self._taken:
            self._consumer._give_back(self._event)
