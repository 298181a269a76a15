"""Drains what was pushed when the interpreter ends, in children of fork too.

What goes wrong then and was raised by no call before is one line on standard error.
"""

from __future__ import annotations

import atexit
import os
import sys

from thalweg._thalweg import _close_all, _stop_callbacks

#: Seconds to wait for what is outstanding when the interpreter ends.
DRAIN_SECONDS = 120.0


def _drain() -> None:
    try:
        failure = _close_all(DRAIN_SECONDS)
        if failure is not None and sys.stderr is not None:
            print(f"thalweg: while the program ended: {failure}", file=sys.stderr)
    finally:
        _stop_callbacks()


def _in_child() -> None:
    # A child of multiprocessing ends without atexit handlers, but runs its own
    # finalizers. It forgets those of its parent first, then calls what was
    # registered to be called after a fork: that is the moment to add ours.
    util = sys.modules.get("multiprocessing.util")
    if util is not None:
        util.register_after_fork(_in_child, lambda _: util.Finalize(None, _drain, exitpriority=0))


atexit.register(_drain)
os.register_at_fork(after_in_child=_in_child)
