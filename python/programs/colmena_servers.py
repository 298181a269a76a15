"""Task servers for the tests of Colmena's queues: importable, for those that are spawned."""

from __future__ import annotations

import os
from typing import Any

from colmena.exceptions import KillSignalException

from thalweg.integrations.colmena import ThalwegQueues


def serve(queues: ThalwegQueues) -> None:
    """A task server that runs its tasks itself; says who it is."""
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
    while True:
        queues.get_task(timeout=100)
        taken.release()
