"""A Colmena task or result as an event: what is small travels as metadata,
large inputs and values as data.

Colmena hands over a string of JSON in which inputs and values are strings, too:
pickles as hexadecimal digits. An event has one of three forms:

- metadata: Colmena's string. For what is small.
- data: Colmena's string. For what is large and nothing else is known of.
- metadata: Colmena's string with null for each input and the value; the header
  ``colmena.parts``: their lengths; data: their bytes, one behind the other. A
  pickle travels as it is, without becoming digits.

The header ``colmena.topic`` says which topic of Colmena's it is.
"""

from __future__ import annotations

import json
import pickle
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from colmena.models import Result, SerializationMethod

from thalweg._thalweg import _unhex

TOPIC = "colmena.topic"
PARTS = "colmena.parts"

METADATA_BYTES_MAX = 64 << 10
"""What is longer becomes data."""

_PIECES_MAX = 64
"""More than so many pieces of a value are joined."""


@dataclass(frozen=True, slots=True)
class Message:
    """What is pushed as one event."""

    metadata: bytes | None
    data: list[Any] | bytes | None
    headers: dict[str, str]


def pickled(value: Any) -> list[bytes]:
    """What `pickle.dumps` returns, in pieces: large bytes are a piece as they
    are, which are not copied, nor are other threads kept waiting meanwhile.
    """
    sink = _Sink()
    pickle.Pickler(sink).dump(value)
    pieces = sink.pieces
    # An event has a limit, which is far above that.
    return pieces if len(pieces) <= _PIECES_MAX else [b"".join(pieces)]


class _Sink:
    def __init__(self) -> None:
        self.pieces: list[bytes] = []

    def write(self, piece: Any) -> None:
        # A bytearray may be changed by its owner.
        self.pieces.append(piece if type(piece) is bytes else bytes(piece))


def from_text(text: str, topic: str) -> Message:
    """The event of a string of which nothing is known."""
    whole = text.encode()
    if len(whole) <= METADATA_BYTES_MAX:
        return Message(whole, None, {TOPIC: topic})
    return Message(None, whole, {TOPIC: topic})


def from_result(result: Result, topic: str, **options: Any) -> Message:
    """The event of a task or a result whose inputs and value are serialized;
    ``options`` are those of its ``json``.
    """
    parts = _bytes_of_parts(result)
    if parts is None:
        return from_text(result.json(**options), topic)
    return from_parts(result, [[part] for part in parts], topic, **options)


def from_parts(
    result: Result, parts: Sequence[Sequence[bytes]], topic: str, **options: Any
) -> Message:
    """The event of a task or a result of which ``parts`` are the inputs, those
    with names behind the others, and the value, if there is one; each in pieces.
    """
    inputs, value = result.inputs, result.value
    try:
        result.inputs = ([None] * len(inputs[0]), dict.fromkeys(inputs[1]))
        result.value = None
        described = result.json(**options).encode()
    finally:
        result.inputs, result.value = inputs, value
    if len(described) > METADATA_BYTES_MAX:
        return from_text(result.json(**options), topic)
    lengths = json.dumps([sum(map(len, part)) for part in parts], separators=(",", ":"))
    pieces = [piece for part in parts for piece in part]
    return Message(described, pieces, {TOPIC: topic, PARTS: lengths})


def text_of(metadata: bytes, headers: dict[str, bytes], data: memoryview) -> str:
    """Colmena's string, whatever form the event has."""
    if PARTS in headers:
        # mypy sees Colmena without types.
        text: str = result_of(metadata, headers, data).json()
        return text
    return str(data, "utf-8") if data.nbytes else metadata.decode()


def result_of(
    metadata: bytes, headers: dict[str, bytes], data: memoryview, *, load: bool = False
) -> Result:
    """The task or result of an event: its inputs and value serialized, or
    with ``load`` as what they are, if they came apart.
    """
    if PARTS not in headers:
        return Result.model_validate_json(text_of(metadata, headers, data))
    result = Result.model_validate_json(metadata)
    decode = _decoder(result.serialization_method, load)
    parts = []
    begin = 0
    for length in json.loads(headers[PARTS]):
        parts.append(decode(data[begin : begin + length]))
        begin += length
    positional, named = result.inputs
    count = len(positional)
    result.inputs = (tuple(parts[:count]), dict(zip(named, parts[count:], strict=False)))
    if len(parts) > count + len(named):
        result.value = parts[-1]
    return result


def _decoder(method: SerializationMethod, load: bool) -> Any:
    if method == SerializationMethod.PICKLE:
        return pickle.loads if load else memoryview.hex
    if load:
        return lambda part: json.loads(bytes(part))
    return lambda part: str(part, "utf-8")


def _bytes_of_parts(result: Result) -> list[bytes] | None:
    """The inputs and the value as bytes, if they are large and strings as
    Colmena makes them.
    """
    if isinstance(result.inputs, str):
        return None
    positional, named = result.inputs
    parts = [*positional, *named.values()]
    if result.value is not None:
        parts.append(result.value)
    if not all(isinstance(part, str) for part in parts):
        return None
    if sum(map(len, parts)) <= METADATA_BYTES_MAX:
        return None
    if result.serialization_method != SerializationMethod.PICKLE:
        return [part.encode() for part in parts]
    try:
        return [_unhex(part) for part in parts]
    except ValueError:
        return None
