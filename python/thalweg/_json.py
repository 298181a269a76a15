"""Metadata as JSON: by orjson where it is installed, else by the standard library.

Both write UTF-8 without spaces. They differ in one thing: a NaN or an infinity
becomes ``null`` with orjson, and is refused by the standard library.
"""

from __future__ import annotations

import json
from typing import Any

from thalweg.exceptions import InvalidEvent

try:
    import orjson
except ImportError:
    orjson = None  # type: ignore[assignment]


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
        return orjson.dumps(value, _plain, orjson.OPT_SERIALIZE_NUMPY)
    except (TypeError, ValueError, RecursionError) as reason:
        raise InvalidEvent(f"metadata can't be made JSON: {reason}") from reason
