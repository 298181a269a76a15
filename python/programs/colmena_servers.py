"""Task servers for the tests of Colmena's queues: importable, for those that are spawned."""

from __future__ import annotations

import faulthandler
import os
from typing import Any

from colmena.exceptions import KillSignalException

from thalweg.integrations.colmena import ThalwegQueues


_STACKS_AFTER_SECONDS = 60


def _show_stacks() -> None:
    """Has the stacks printed, of all threads: if a signal ends this process, and
    if it is still here when the test is about to give up.
    """
    faulthandler.enable()
    faulthandler.dump_traceback_later(_STACKS_AFTER_SECONDS, repeat=True)


def serve(queues: ThalwegQueues) -> None:
    """A task server that runs its tasks itself; says who it is."""
    _show_stacks()
    queues.set_role("server")
    while True:
        try:
            _, task = queues.get_task(timeout=100)
        except KillSignalException:
            return
        task.deserialize()
        task.set_result((os.getpid(), task.args[0]))
        task.serialize()
        queues.send_result(task)


def take_and_wait(queues: ThalwegQueues, taken: Any) -> None:
    """A task server that takes tasks and never ends one."""
    _show_stacks()
    while True:
        queues.get_task(timeout=100)
        taken.release()
