"""Metadata as JSON: by orjson where it is installed, else by the standard library.

Both write UTF-8 without spaces. They differ in one thing: a NaN or an infinity
becomes ``null`` with orjson, and is refused by the standard library.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import threading
from typing import Any

from thalweg.exceptions import InvalidEvent


def _import_orjson() -> Any:
    """orjson, or None where it is not installed.

    It is imported on a thread of its own. The main thread is where signal handlers run, and the
    process would crash if one raises, as Ctrl-C does, while orjson sets itself up: it then uses
    a module that it failed to import.
    """
    found: list[Any] = []

    def search() -> None:
        with contextlib.suppress(ImportError):
            found.append(importlib.import_module("orjson"))

    importer = threading.Thread(target=search, name="thalweg-import", daemon=True)
    try:
        importer.start()
    except RuntimeError:  # The interpreter is about to end, and starts no threads any more.
        search()
    else:
        importer.join()
    return found[0] if found else None


orjson = _import_orjson()


def _plain(value: Any) -> Any:
    """What a value of another library means in JSON: numpy's scalars and arrays."""
    convert = getattr(value, "tolist", None)
    if convert is None:
        raise TypeError(f"a {type(value).__module__}.{type(value).__qualname__} has no JSON form")
    return convert()


def _standard_dumps(value: Any) -> bytes:
    text = json.dumps(
        value, separators=(",", ":"), ensure_ascii=False, allow_nan=False, default=_plain
    )
    return text.encode()


#: The quick way: one positional argument, bytes back.
dumps = _standard_dumps if orjson is None else orjson.dumps
#: Takes bytes.
loads = json.loads if orjson is None else orjson.loads


def dumps_anything(value: Any) -> bytes:
    """The way for what the quick one refuses; says why if there is no JSON form.

    Raises:
        InvalidEvent: with the serializer's reason.
    """
    try:
        if orjson is None:
            return _standard_dumps(value)
        written: bytes = orjson.dumps(value, _plain, orjson.OPT_SERIALIZE_NUMPY)
        return written
    except (TypeError, ValueError, RecursionError) as reason:
        raise InvalidEvent(f"metadata can't be made JSON: {reason}") from reason
