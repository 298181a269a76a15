"""Locks that a child of `os.fork()` finds free."""

from __future__ import annotations

import os
import weakref
from typing import Protocol

__all__ = ["renewed_after_fork"]


class _Renewable(Protocol):
    def _renew(self) -> None:
        """Makes the locks anew; called in a child, where nothing else runs yet."""


_objects: weakref.WeakSet[_Renewable] = weakref.WeakSet()


def renewed_after_fork(owner: _Renewable) -> None:
    """Has `owner._renew()` called in children of `os.fork()`.

    Another thread may hold a lock when the fork happens, and does not exist in
    the child to give it back.
    """
    _objects.add(owner)


def _in_child() -> None:
    for owner in list(_objects):
        owner._renew()


os.register_at_fork(after_in_child=_in_child)
