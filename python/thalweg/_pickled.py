"""What drivers, topics, producers and consumers become when they are pickled: how
they were opened. Where they arrive stands a `Later` for them, and their like is
opened when it is first used, once for each process: who only passes
them on, as a scheduler does, is no producer or consumer.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Any

import thalweg

# Guards the two below. Taken while connecting: who wants the same waits.
_lock = threading.RLock()
_drivers: dict[tuple[tuple[str, Any], ...], thalweg.Driver] = {}
_opened: dict[str, tuple[thalweg.Driver, Any]] = {}

_KINDS = {
    "producer": thalweg.Producer,
    "consumer": thalweg.Consumer,
    "group": thalweg.Consumer,
    "queue": thalweg.QueueConsumer,
    "requester": thalweg.Requester,
}


class Later:
    """Stands for an object, which is opened when it is first used."""

    __slots__ = ("_arguments", "_kind", "_open", "_real")

    def __init__(self, kind: type, open: Callable[..., Any], *arguments: Any) -> None:
        self._kind = kind
        self._open = open
        self._arguments = arguments
        self._real: Any = None

    def _get(self) -> Any:
        with _lock:
            if self._real is None:
                self._real = self._open(*self._arguments)
        return self._real

    # So that isinstance() says what it stands for.
    @property  # type: ignore[misc]
    def __class__(self) -> type:
        return self._kind

    def __getattr__(self, name: str) -> Any:
        return getattr(self._get(), name)

    def __reduce__(self) -> tuple[Any, ...]:
        return (Later, (self._kind, self._open, *self._arguments))

    def __repr__(self) -> str:
        with _lock:
            opened = self._real
        return f"{self._kind.__name__}(not opened yet)" if opened is None else repr(opened)

    def __enter__(self) -> Any:
        return self._get().__enter__()

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc_value: BaseException | None,
        traceback: TracebackType | None,
    ) -> Any:
        return self._get().__exit__(exc_type, exc_value, traceback)

    def __aenter__(self) -> Any:
        return self._get().__aenter__()

    def __aexit__(self, *raised: Any) -> Any:
        return self._get().__aexit__(*raised)

    def __iter__(self) -> Any:
        return iter(self._get())

    def __next__(self) -> Any:
        return next(self._get())

    def __aiter__(self) -> Any:
        return self._get().__aiter__()


def connect(arguments: dict[str, Any]) -> Any:
    """This process's driver of these arguments."""
    return Later(thalweg.Driver, _connect, arguments)


def open_topic(driver: Any, name: str) -> Any:
    """The topic that has the name then."""
    return Later(thalweg.Topic, _open_topic, driver, name)


def open_again(topic: Any, method: str, arguments: dict[str, Any], id: str) -> Any:
    """This process's like of the producer or consumer of that id."""
    return Later(_KINDS[method], _open_again, topic, method, arguments, id)


def _connect(arguments: dict[str, Any]) -> thalweg.Driver:
    key = tuple(sorted(arguments.items()))
    with _lock:
        driver = _drivers.get(key)
        if driver is None or driver.closed:
            driver = _drivers[key] = thalweg.Driver(**arguments)
    return driver


def _open_topic(driver: Any, name: str) -> Any:
    return driver.open_topic(name)


def _open_again(topic: Any, method: str, arguments: dict[str, Any], id: str) -> Any:
    with _lock:
        # Those of a driver that was closed have ended with it.
        for known, (driver, opened) in list(_opened.items()):
            if driver.closed or opened.closed:
                del _opened[known]
        if id not in _opened:
            opened = getattr(topic, method)(**arguments)
            _opened[id] = topic._driver(), opened
        return _opened[id][1]


def _after_fork() -> None:
    global _lock
    _lock = threading.RLock()


os.register_at_fork(after_in_child=_after_fork)
