"""Validators, partition selectors and serializers that users bring.

A topic names its plugins; every client that needs one has to have it. A
:class:`Plugin` is such a name, with the options that are stored beside it.
Plugins of shared libraries work here as everywhere; those of Python are
subclasses of :class:`Validator`, :class:`PartitionSelector` and
:class:`Serializer`, in a module that can be imported::

    # energy.py
    class EnergyValidator(thalweg.plugins.Validator):
        def validate(self, metadata: bytes) -> None:
            energy = json.loads(metadata)["energy"]
            if not 0 <= energy <= self.options["energy_max"]:
                raise ValueError(f"energy {energy} is not in range")

    driver.create_topic(
        "events",
        validator=thalweg.Plugin("energy:EnergyValidator", {"energy_max": 100}),
    )

A ``ValueError`` refuses the metadata; any other exception says that the plugin
has failed. Opening a topic imports the modules that it names: names come from
whoever made the topic, and only subclasses of the classes here are called.
"""

from __future__ import annotations

import importlib
import json
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Any

__all__ = ["PartitionSelector", "Plugin", "Serializer", "Validator"]


@dataclass(frozen=True)
class Plugin:
    """A plugin as a topic names it.

    ``name`` is ``"name:library.so"``, something that a shared library offers,
    or ``"module:object"``, a class of Python. ``options`` are handed to it:
    a dict that has a JSON form.
    """

    name: str
    options: dict[str, Any] = field(default_factory=dict)


class _Base:
    """A plugin has its topic's options."""

    def __init__(self, options: dict[str, Any]) -> None:
        """May raise anything if ``options`` are not good."""
        self.options = options


class Validator(_Base, ABC):
    """Says whether metadata may enter a topic. One for each opened topic."""

    @abstractmethod
    def validate(self, metadata: bytes) -> None:
        """Raises ``ValueError`` with the reason if the metadata is refused.

        The same bytes must always get the same answer. May be called by
        several threads.
        """


class PartitionSelector(_Base, ABC):
    """Chooses the partitions of events. One for each producer."""

    @abstractmethod
    def select(self, metadata: bytes, key: bytes | None, partition_count: int) -> int:
        """The event's partition, from 0, below ``partition_count``.

        Called in the order of pushing, for events that ask for no partition
        themselves. It must not push to, or flush, its own producer.
        """


class Serializer(_Base, ABC):
    """Turns metadata into the bytes that are stored and sent, and back. One
    for each opened topic; may be called by several threads.
    """

    @abstractmethod
    def serialize(self, metadata: bytes) -> bytes:
        """What is stored and sent for ``metadata``. ``ValueError`` refuses it."""

    @abstractmethod
    def deserialize(self, data: bytes) -> bytes:
        """The metadata that ``data`` stands for."""


_ROLES: dict[str, type[_Base]] = {
    "validator": Validator,
    "partition selector": PartitionSelector,
    "serializer": Serializer,
}


def _make(module: str, name: str, role: str, options: str) -> _Base:
    """An instance of a plugin's class; whatever is wrong is raised."""
    try:
        found: Any = importlib.import_module(module)
    except ImportError as error:
        raise ImportError(f"{error}; modules are looked for in sys.path") from error
    for part in name.split("."):
        found = getattr(found, part)
    base = _ROLES[role]
    if not (isinstance(found, type) and issubclass(found, base)):
        raise TypeError(
            f"{name} is no {role}: no subclass of thalweg.plugins.{base.__name__}"
        )
    return found(json.loads(options))
