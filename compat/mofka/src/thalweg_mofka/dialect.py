"""Which of its generations of Mofka's API a program was written for.

All of them may be called: every method takes the arguments of each. What can't
be had at once is settled here, for each driver by itself:

========== ======================= =========================
dialect    `event.metadata`        `producer.flush()`
========== ======================= =========================
`LEGACY`   the text of the JSON    waits
`MIDDLE`   the parsed JSON         waits
`CURRENT`  the parsed JSON         returns a future
========== ======================= =========================
"""

from __future__ import annotations

import os
from enum import Enum

from thalweg_mofka.errors import ClientException

__all__ = ["ENVIRONMENT", "Dialect", "chosen"]

#: Overrules what the call of the constructor says.
ENVIRONMENT = "THALWEG_MOFKA_DIALECT"


class Dialect(Enum):
    """A generation of the API."""

    LEGACY = "legacy"
    """Mofka up to 0.6: `MofkaDriver("mofka.json")`, `use_progress_thread=`."""
    MIDDLE = "middle"
    """diaspora-stream-api 0.1 to 0.3: `Driver.new(name, options)`."""
    CURRENT = "current"
    """diaspora-stream-api from 0.4: `Driver(backend=, options=)`, `MofkaDriver(group_file=)`."""

    @property
    def metadata_is_text(self) -> bool:
        """Whether `event.metadata` is JSON to be parsed by the program."""
        return self is Dialect.LEGACY

    @property
    def flush_waits(self) -> bool:
        """Whether `producer.flush()` returns only when all is acknowledged."""
        return self is not Dialect.CURRENT


def chosen(option: Dialect | str | None, by_call: Dialect) -> Dialect:
    """The dialect of a driver: the program's own word, else the environment's,
    else what the way in which the driver is made tells.
    """
    if isinstance(option, Dialect):
        return option
    for source, name in ((f"the option dialect={option!r}", option),
                         (ENVIRONMENT, os.environ.get(ENVIRONMENT))):
        if name:
            try:
                return Dialect(name.lower())
            except ValueError:
                known = ", ".join(dialect.value for dialect in Dialect)
                raise ClientException(f"{source}: {name!r} is no dialect; known: {known}") from None
    return by_call
