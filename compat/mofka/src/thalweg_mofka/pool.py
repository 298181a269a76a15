"""Thread pools and orderings: what programs hand over and ask back."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from enum import Enum
from typing import Any

__all__ = ["Ordering", "ThreadPool"]


class Ordering(Enum):
    """In which order a producer's events are stored."""

    Strict = "strict"
    """In the order of the pushes."""
    Loose = "loose"
    """In any order."""


class ThreadPool:
    """Threads that call processors of events; with 0, the caller does.

    Producers and consumers take one, and need none: Thalweg's own runtime does
    their work.
    """

    def __init__(self, thread_count: int = 0) -> None:
        if thread_count < 0:
            raise ValueError(f"a pool of {thread_count} threads")
        self._count = int(thread_count)
        self._executor: ThreadPoolExecutor | None = None

    @property
    def thread_count(self) -> int:
        """The number of threads."""
        return self._count

    def run(self, function: Callable[[], Any]) -> Future[Any]:
        """Calls the function on a thread of the pool, or now if it has none."""
        if self._count == 0:
            done: Future[Any] = Future()
            try:
                done.set_result(function())
            except BaseException as error:
                done.set_exception(error)
            return done
        if self._executor is None:
            self._executor = ThreadPoolExecutor(self._count, "thalweg-mofka-pool")
        return self._executor.submit(function)

    def __reduce__(self) -> tuple[type[ThreadPool], tuple[int]]:
        return type(self), (self._count,)

    def __repr__(self) -> str:
        return f"ThreadPool({self._count})"
