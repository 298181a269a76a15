"""The bridge to asyncio: called by the extension module, which waits for nobody here."""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar, overload

if TYPE_CHECKING:
    from thalweg._thalweg import (
        Consumer,
        Drain,
        Driver,
        Event,
        Future,
        Producer,
        QueueConsumer,
        QueueEvent,
        Reader,
        Requester,
    )

_T = TypeVar("_T")

#: A consumer's wake-up is never relied on alone: seconds between looks.
_LOOK_SECONDS = 1.0


def _finish(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)


def _wake(loop: asyncio.AbstractEventLoop, waiter: asyncio.Future[None], _: Any = None) -> None:
    try:
        loop.call_soon_threadsafe(_finish, waiter)
    except RuntimeError:
        pass  # The loop was closed meanwhile: nobody waits any more.


def await_outcome(future: Future[_T]) -> Generator[Any, None, _T]:
    """What ``await future`` runs."""
    if not future.done():
        loop = asyncio.get_running_loop()
        waiter: asyncio.Future[None] = loop.create_future()
        future.add_done_callback(partial(_wake, loop, waiter))
        yield from waiter.__await__()
    return future.result(0)


async def enter(resource: _T) -> _T:
    """What ``async with`` begins with."""
    return resource


async def leave(resource: Driver | Producer | Consumer | QueueConsumer | Requester) -> None:
    """What ``async with`` ends with: closes, as ``with`` does, on another thread."""
    await asyncio.to_thread(resource.close)


@overload
async def next_event(consumer: Consumer) -> Event: ...
@overload
async def next_event(consumer: QueueConsumer) -> QueueEvent: ...
async def next_event(consumer: Consumer | QueueConsumer) -> Event:
    """What ``async for event in consumer`` runs when no event lies ready."""
    loop = asyncio.get_running_loop()
    while True:
        waiter: asyncio.Future[None] = loop.create_future()
        # Asked before looking, so that no wake-up falls between the two.
        consumer._call_when_ready(partial(_wake, loop, waiter))
        if consumer.closed:
            raise StopAsyncIteration
        event = consumer._look()
        if event is not None:
            return event
        if getattr(consumer, "winding_down", False):
            raise StopAsyncIteration
        await asyncio.wait((waiter,), timeout=_LOOK_SECONDS)


@overload
async def next_of_bounded(source: Drain) -> QueueEvent: ...
@overload
async def next_of_bounded(source: Reader) -> Event: ...
async def next_of_bounded(source: Drain | Reader) -> Event:
    """What ``async for`` runs over what ends by itself."""
    loop = asyncio.get_running_loop()
    while True:
        waiter: asyncio.Future[None] = loop.create_future()
        # Asked before looking, so that no wake-up falls between the two.
        source._call_when_ready(partial(_wake, loop, waiter))
        event, due = source._look()
        if event is not None:
            return event
        seconds = _LOOK_SECONDS if due is None else min(due, _LOOK_SECONDS)
        await asyncio.wait((waiter,), timeout=seconds)
