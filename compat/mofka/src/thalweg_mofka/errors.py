"""The one exception that Mofka's programs catch, and how Thalweg's become it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import thalweg

__all__ = ["ClientException", "InvalidSchema", "translated"]


class ClientException(RuntimeError):
    """Anything that goes wrong. `__cause__` is Thalweg's own exception, if there is one."""


class InvalidSchema(ClientException, ValueError):
    """What was given as a schema is none."""


@contextmanager
def translated() -> Iterator[None]:
    """Raises `ClientException` for what Thalweg raises in the block."""
    try:
        yield
    except thalweg.Error as error:
        raise ClientException(str(error)) from error
