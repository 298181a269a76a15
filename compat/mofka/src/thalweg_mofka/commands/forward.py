"""`diaspora-ctl forward`: copies events between topics, of one server or of several.

An event is acknowledged at its source once it is stored at its destination, so
that what was under way when the command was ended, or killed, is copied again.
One that the destination's validator refuses is passed over, with a line that
says so; a destination that can't store ends the command with an error.
"""

from __future__ import annotations

import importlib
import logging
import threading
import time
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import thalweg

from thalweg_mofka.commands.arguments import UsageError
from thalweg_mofka.consumer import Consumer
from thalweg_mofka.driver import Driver
from thalweg_mofka.errors import ClientException
from thalweg_mofka.event import Event
from thalweg_mofka.futures import FutureUint
from thalweg_mofka.producer import Producer

__all__ = ["Policy", "run"]

#: Milliseconds that one pull waits, and so how long the end may take to be seen.
_PULL_MS = 200
#: Milliseconds for what is under way at the end.
_FLUSH_MS = 5000
#: Events under way at most.
_UNDER_WAY_MAX = 1024


@dataclass(frozen=True)
class Policy:
    """From where to where, each a driver and a topic, and what of the data."""

    source: tuple[str, str]
    destination: tuple[str, str]
    data_selector: str | None = None
    data_allocator: str | None = None

    @property
    def name(self) -> str:
        """The policy in words, and the name of its consumer."""
        return f"{'/'.join(self.source)}->{'/'.join(self.destination)}"


def run(config: str, end: threading.Event) -> None:
    """Forwards as the YAML file `config` says, until `end` is set."""
    drivers, policies = _read(config)
    opened = {name: Driver(kind, options) for name, (kind, options) in drivers.items()}
    try:
        workers = [_Worker(policy, opened, end) for policy in policies]
        for worker in workers:
            worker.start()
        logging.info("forwarding by %d policies", len(workers))
        for worker in workers:
            worker.join()
        failed = [worker.failure for worker in workers if worker.failure is not None]
        if failed:
            raise failed[0]
    finally:
        for driver in opened.values():
            driver.close(timeout=_FLUSH_MS / 1000)


class _Worker(threading.Thread):
    """One policy, on a thread of its own."""

    def __init__(self, policy: Policy, drivers: Mapping[str, Driver], end: threading.Event) -> None:
        super().__init__(name=f"forward {policy.name}")
        self._policy = policy
        self._end = end
        source, destination = (
            drivers[driver].open_topic(topic) for driver, topic in (policy.source, policy.destination)
        )
        given = {
            key: _function(spec)
            for key, spec in (("data_selector", policy.data_selector), ("data_allocator", policy.data_allocator))
            if spec is not None
        }
        self._consumer: Consumer = source.consumer(policy.name, **given)
        self._producer: Producer = destination.producer()
        self._under_way: deque[tuple[Event, FutureUint]] = deque()
        self.failure: ClientException | None = None
        """Why nothing can be stored at the destination any more."""

    def run(self) -> None:
        logging.info("%s: begins", self._policy.name)
        while not self._end.is_set():
            try:
                event = self._consumer.pull().wait(0 if self._under_way else _PULL_MS)
            except ClientException as error:
                # The source is away, or an event of it is damaged.
                logging.error("%s: %s", self._policy.name, error)
                self._end.wait(0.5)
                continue
            try:
                self._store(event)
            except ClientException as error:
                # What comes next must not be acknowledged before what failed.
                self.failure = error
                self._end.set()
        self._finish()
        logging.info("%s: ends", self._policy.name)

    def _finish(self) -> None:
        """Waits for what is under way, as long as the end may take."""
        deadline = time.monotonic() + _FLUSH_MS / 1000
        try:
            self._producer.flush_async()
            while self._under_way:
                self._finish_first(max(0.0, deadline - time.monotonic()) * 1000)
            self._consumer.close(_FLUSH_MS)
            self._producer.close(_FLUSH_MS)
        except (ClientException, TimeoutError) as error:
            logging.error("%s: at the end: %s", self._policy.name, error)

    def _store(self, event: Event | None) -> None:
        """Sends an event on, and acknowledges those that are stored by now."""
        if event is not None and event.event_id is not None:
            try:
                self._under_way.append((event, self._producer.push(event.metadata_text, event.data)))
            except ClientException as error:
                if not isinstance(error.__cause__, thalweg.InvalidEvent):
                    raise
                logging.error("%s: event %d of %s is passed over: %s", self._policy.name, event.event_id,
                              event.partition["uuid"], error)
        if len(self._under_way) >= _UNDER_WAY_MAX or (event is None and self._under_way):
            self._finish_first(_PULL_MS, patient=True)
        while self._under_way and self._under_way[0][1].completed:
            self._finish_first(0)

    def _finish_first(self, timeout_ms: float, patient: bool = False) -> None:
        """Acknowledges the first event under way, once it is stored."""
        event, stored = self._under_way[0]
        if stored.wait(timeout_ms) is None:
            if patient:
                return
            raise TimeoutError(f"{len(self._under_way)} events are not stored yet; they will be forwarded again")
        self._under_way.popleft()
        event.acknowledge()


def _function(spec: str) -> Any:
    """The function that `module:function` names."""
    module, _, name = spec.partition(":")
    if not name or module.endswith(".so"):
        raise UsageError(f"{spec!r} is no module:function of Python; plugins in C++ are not loaded")
    try:
        return getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise UsageError(f"{spec}: {error}") from None


def _read(path: str) -> tuple[dict[str, tuple[str, dict[str, Any]]], list[Policy]]:
    try:
        import yaml
    except ImportError:
        raise UsageError("forward needs PyYAML: pip install 'thalweg-mofka[forward]'") from None
    with open(path, encoding="utf-8") as file:
        try:
            config = yaml.safe_load(file)
        except yaml.YAMLError as error:
            raise UsageError(f"{path}: {error}") from None
    if not isinstance(config, dict) or not isinstance(config.get("drivers"), dict) \
            or not isinstance(config.get("forward"), list):
        raise UsageError(f"{path}: needs `drivers`, an object, and `forward`, a list")
    drivers: dict[str, tuple[str, dict[str, Any]]] = {}
    for name, driver in config["drivers"].items():
        if not isinstance(driver, dict) or "type" not in driver:
            raise UsageError(f"{path}: driver {name} has no type")
        drivers[str(name)] = (str(driver["type"]), dict(driver.get("options") or {}))
    policies = []
    for entry in config["forward"]:
        if not isinstance(entry, dict) or "from" not in entry or "to" not in entry:
            raise UsageError(f"{path}: {entry!r} needs `from` and `to`")
        policy = Policy(
            _place(entry["from"]), _place(entry["to"]), entry.get("data_selector"), entry.get("data_allocator")
        )
        for driver_name, _ in (policy.source, policy.destination):
            if driver_name not in drivers:
                raise UsageError(f"{path}: there is no driver {driver_name}")
        policies.append(policy)
    return drivers, policies


def _place(text: str) -> tuple[str, str]:
    driver, slash, topic = str(text).partition("/")
    if not slash or not driver or not topic:
        raise UsageError(f"{text!r} is no driver/topic")
    return driver, topic
