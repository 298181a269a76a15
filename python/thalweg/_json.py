"""Metadata as JSON: by orjson where it is installed, else by the standard library.

Both write UTF-8 without spaces. A NaN or an infinity is refused: the standard library
does so, and where orjson writes ``null`` the caller looks for one (``non_finite``).
"""

from __future__ import annotations

import contextlib
import dataclasses
import importlib
import json
import math
import threading
from typing import TYPE_CHECKING, Any

from thalweg.exceptions import InvalidEvent

if TYPE_CHECKING:
    from collections.abc import Callable


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


def dumps_anything(value: Any, what: str = "metadata") -> bytes:
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
        found = None if isinstance(reason, RecursionError) else non_finite(value)
        if found is not None:
            path, number = found
            raise InvalidEvent(
                f"{what}{path} is {number}, and JSON has no such number: give None or a str in "
                f"its place, such as {str(number)!r}"
            ) from reason
        wide = None if isinstance(reason, RecursionError) else _find(value, _is_wide)
        if wide is not None:
            path, number = wide
            raise InvalidEvent(
                f"{what}{path} is an int of {number.bit_length()} bits, and metadata has "
                "integers from -2**63 to 2**64 - 1: give a float or a str in its place"
            ) from reason
        raise InvalidEvent(f"{what} can't be made JSON: {reason}") from reason


def non_finite(value: Any) -> tuple[str, Any] | None:
    """Where in a value a number is that is not finite, and which: None if there is none."""
    return _find(value, _is_not_finite)


#: Deeper than any JSON that is written.
_DEPTH_MAX = 300


def _is_not_finite(value: Any) -> bool:
    return isinstance(value, float) and not math.isfinite(value)


def _is_wide(value: Any) -> bool:
    return isinstance(value, int) and not -(2**63) <= value < 2**64


def _find(value: Any, is_wanted: Callable[[Any], bool], depth: int = 0) -> tuple[str, Any] | None:
    """Where in a value the first number is that is wanted, and which: None if there is none."""
    steps: Any
    if value is None or isinstance(value, str) or depth > _DEPTH_MAX:
        return None
    if isinstance(value, (int, float)):
        return ("", value) if is_wanted(value) else None
    if isinstance(value, dict):
        steps = ((f"[{key!r}]", entry) for key, entry in value.items())
    elif isinstance(value, (list, tuple)):
        steps = ((f"[{index}]", entry) for index, entry in enumerate(value))
    elif dataclasses.is_dataclass(value):
        fields = dataclasses.fields(value)
        steps = ((f".{field.name}", getattr(value, field.name, None)) for field in fields)
    elif (convert := getattr(value, "tolist", None)) is not None:
        steps = (("", convert()),)
    else:
        return None
    for step, entry in steps:
        found = _find(entry, is_wanted, depth + 1)
        if found is not None:
            return step + found[0], found[1]
    return None


def refuse_data(value: Any) -> None:
    """Refuses as metadata what is data: an array, a table, a buffer.

    Raises:
        InvalidEvent: which says where it belongs.
    """
    if isinstance(value, (bytearray, dict, list, tuple, str, int, float)):
        return
    if isinstance(value, memoryview):
        is_data = value.ndim != 1 or value.itemsize != 1
    else:
        dimensions = getattr(value, "ndim", None)
        if isinstance(dimensions, int):
            is_data = dimensions > 0
        else:
            is_data = any(hasattr(value, name) for name in _DATA_ATTRIBUTES) or _is_buffer(value)
    if not is_data:
        return
    kind = f"{type(value).__module__}.{type(value).__qualname__}"
    shape = getattr(value, "shape", None)
    if isinstance(shape, tuple):
        kind += f" of shape {shape}"
    raise InvalidEvent(
        f"metadata is a {kind}, which is data: push(metadata, data) takes it as the second "
        f"argument; what says how to read it (dtype, shape) is metadata, see Event.numpy"
    )


#: What arrays and tables of numpy, xarray, Arrow, pandas, polars and others have.
_DATA_ATTRIBUTES = ("__array__", "__arrow_c_stream__", "__arrow_c_array__", "__dlpack__")


def _is_buffer(value: Any) -> bool:
    try:
        memoryview(value).release()
    except (TypeError, ValueError, BufferError):
        return False
    return True
