"""Validators, partition selectors and serializers that users bring.

A topic names its plugins; every client that needs one has to have it. A
:class:`Plugin` is such a name, with the options that are stored beside it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

__all__ = ["Plugin"]


@dataclass(frozen=True)
class Plugin:
    """A plugin as a topic names it.

    ``name`` is ``"name:library.so"``, something that a shared library offers,
    or ``"module:object"``, a class of Python. ``options`` are handed to it:
    a dict that has a JSON form.
    """

    name: str
    options: dict[str, Any] = field(default_factory=dict)
