"""Elements, attributes and selections of steps, between numpy and the native module."""

from __future__ import annotations

import json
import operator
import struct
from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from typing import TYPE_CHECKING, Any, SupportsIndex, TypeAlias

import numpy as np

from thalweg import _arrays
from thalweg._thalweg import _StepView, _StepWriter
from thalweg.exceptions import InvalidArgument

if TYPE_CHECKING:
    from thalweg.steps import Variable, _Index, _Preload

_Array: TypeAlias = np.ndarray[Any, Any]

TEXT = "str"


def opened(source: Any) -> Any:
    """What a driver or topic is that came by a pickle: it is opened when it is first used."""
    from thalweg._pickled import Later

    return source._get() if type(source) is Later else source


def retention(kept: Mapping[str, Any] | None) -> str | None:
    """What is kept of a stream, as JSON that a definition has."""
    return None if kept is None else json.dumps({"retention": dict(kept)})


def text_of(dtype: np.dtype[Any]) -> str:
    """A dtype as streams write it."""
    description = _arrays._description(dtype)
    if isinstance(description, str):
        return description
    return json.dumps(description)


def dtype_of(text: str) -> np.dtype[Any]:
    """The dtype that a stream's text is."""
    return _arrays._dtype(json.loads(text) if text.startswith("[") else text)


def bytes_of(array: _Array) -> _Array:
    """The memory of an array in one piece, as bytes."""
    return array.reshape(-1).view(np.uint8)


def lengths(name: str, given: SupportsIndex | Sequence[SupportsIndex]) -> list[int]:
    """Lengths or places: a number, or one each dimension."""
    if isinstance(given, (Sequence, np.ndarray)):
        numbers = [operator.index(number) for number in given]
    else:
        numbers = [operator.index(given)]
    if any(number < 0 for number in numbers):
        raise InvalidArgument(f"{name} is of numbers from 0, not {tuple(numbers)}")
    return numbers


# Attributes and values.


def _packed(texts: Sequence[str]) -> bytes:
    """Texts, each behind its length."""
    parts = []
    for text in texts:
        encoded = text.encode()
        parts += [struct.pack("<I", len(encoded)), encoded]
    return b"".join(parts)


def _unpacked(value: bytes) -> list[str]:
    texts = []
    at = 0
    while at < len(value):
        (length,) = struct.unpack_from("<I", value, at)
        texts.append(value[at + 4 : at + 4 + length].decode())
        at += 4 + length
    return texts


def attribute(name: str, value: Any) -> tuple[str, str, bool, bytes]:
    """An attribute as streams keep it: name, dtype, whether it is a list, and bytes."""
    if isinstance(value, str):
        return name, TEXT, False, _packed([value])
    if isinstance(value, (list, tuple)) and all(isinstance(one, str) for one in value) and value:
        return name, TEXT, True, _packed(value)
    array = np.asarray(value)
    if array.ndim > 1 or array.dtype.hasobject:
        raise InvalidArgument(
            f"attribute {name!r}: a value is a number, a str, or a list of them, "
            f"not {type(value).__name__} of {array.ndim} dimensions and dtype {array.dtype}"
        )
    if array.dtype.kind == "U":
        return name, TEXT, array.ndim == 1, _packed(np.atleast_1d(array).tolist())
    return name, text_of(array.dtype), array.ndim == 1, array.tobytes()


def attribute_values(attributes: Sequence[tuple[str, str, bool, bytes]]) -> dict[str, Any]:
    """Attributes as programs see them."""
    return {name: _value(dtype, is_list, value) for name, dtype, is_list, value in attributes}


def _value(dtype: str, is_list: bool, value: bytes) -> Any:
    if dtype == TEXT:
        texts = _unpacked(value)
        return texts if is_list else texts[0]
    array = np.frombuffer(value, dtype_of(dtype))
    return array if is_list else _scalar(array[0])


def _scalar(value: Any) -> Any:
    """Python's own number where it says the same, else numpy's."""
    if isinstance(value, (np.bool_, np.int64, np.float64, np.complex128)):
        return value.item()
    return value


class WriterAttributes(MutableMapping[str, Any]):
    """The attributes of a run, as they are set."""

    def __init__(self, native: _StepWriter) -> None:
        self._native = native

    def _all(self) -> dict[str, Any]:
        return attribute_values(self._native.attributes())

    def __getitem__(self, name: str) -> Any:
        return self._all()[name]

    def __setitem__(self, name: str, value: Any) -> None:
        self._native.set_attribute(*attribute(name, value))

    def __delitem__(self, name: str) -> None:
        raise InvalidArgument(f"attribute {name!r} stays as long as its run: set another value")

    def __iter__(self) -> Iterator[str]:
        return iter(self._all())

    def __len__(self) -> int:
        return len(self._all())

    def __repr__(self) -> str:
        return repr(self._all())


def belongs_to(
    name: str,
    block: tuple[int, ...],
    shape: SupportsIndex | Sequence[SupportsIndex] | None,
    start: SupportsIndex | Sequence[SupportsIndex] | None,
    join: int | None,
    local: bool,
) -> tuple[list[int], list[int]] | int | None:
    """Where a block belongs, as the native writer takes it: shape and start, the dimension along
    which blocks are joined, or None of a local one."""
    ways = [join is not None, local, shape is not None or start is not None]
    if sum(ways) > 1:
        raise InvalidArgument(
            f"variable {name!r}: a block has its place in a shape, or is joined, or is local"
        )
    if join is not None:
        dimension = operator.index(join)
        if not -len(block) <= dimension < len(block):
            raise InvalidArgument(
                f"variable {name!r}: join={join}, but the block has {len(block)} dimensions"
            )
        return dimension % len(block)
    if local:
        return None
    if start is not None and shape is None:
        raise InvalidArgument(f"variable {name!r}: start is a place in a shape, which is missing")
    whole = list(block) if shape is None else lengths("shape", shape)
    place = [0] * len(whole) if start is None else lengths("start", start)
    return whole, place


def extreme(text: str, value: bytes) -> Any:
    return np.frombuffer(value, dtype_of(text))[0] if value else None


class Get:
    """A selection that is to be read: into new memory, that of `out`, or beside it."""

    def __init__(
        self,
        variable: Variable,
        block: int | None,
        shape: tuple[int, ...],
        index: _Index,
        out: _Array | None,
    ) -> None:
        self.variable = variable.name
        self._texts = variable._text == TEXT
        along, dropped = _along(variable.name, shape, index)
        self.result_shape = tuple(n for at, (_, n, _) in enumerate(along) if at not in dropped)
        self._out = out
        self._along = along
        self.wanted: tuple[int | None, list[tuple[int, int, int]] | None] = (block, along)
        if variable.kind == "value":
            self.wanted = (None, None)
        if self._texts:
            if out is not None:
                raise InvalidArgument(f"variable {self.variable!r} is text, which has no buffer")
            return
        dtype = variable.dtype
        if out is None:
            self._array: _Array = np.zeros(self.result_shape, dtype)
        else:
            if not isinstance(out, np.ndarray) or not out.flags.writeable:
                raise InvalidArgument(f"variable {self.variable!r}: out is a writable array")
            if out.shape != self.result_shape or out.dtype != dtype:
                raise InvalidArgument(
                    f"variable {self.variable!r}: out has shape {out.shape} and dtype {out.dtype}, "
                    f"what is read has shape {self.result_shape} and dtype {dtype}"
                )
            self._array = out if out.flags.c_contiguous else np.array(out, order="C")

    @property
    def buffer(self) -> _Array | None:
        return None if self._texts else bytes_of(self._array)

    def take_texts(self, values: Sequence[bytes]) -> None:
        texts = np.array([value.decode() for value in values], object)
        if not self._along:
            self._array = texts[0]
            return
        ((start, count, step),) = self._along
        self._array = texts[start : start + count * step : step]
        if not self.result_shape:
            self._array = self._array[0]

    def result(self) -> Any:
        if self._texts:
            return self._array
        if self._out is None:
            return self._array if self.result_shape else self._array[()]
        if self._out is not self._array:
            self._out[...] = self._array
        return self._out


_Selected: TypeAlias = tuple[str, tuple[None, list[tuple[int, int, int]] | None]]

# Longer than any array: a selection ends with what there is.
_ALL = (1 << 64) - 1


def standing(wanted: _Preload) -> str | list[_Selected] | None:
    """What is read ahead, as the native reader takes it."""
    if wanted is None:
        return None
    if isinstance(wanted, str):
        if wanted != "all":
            raise InvalidArgument(f'preload is "all", names, or indices by name, not {wanted!r}')
        return wanted
    if not isinstance(wanted, Mapping):
        wanted = dict.fromkeys(wanted, ...)
    return [(name, (None, _standing(name, index))) for name, index in wanted.items()]


def _standing(name: str, index: _Index) -> list[tuple[int, int, int]] | None:
    """Start, count and step along the dimensions that an index names; None is all."""
    given = list(index) if isinstance(index, tuple) else [index]
    if given and given[-1] is ...:
        given.pop()
    along = []
    for one in given:
        if isinstance(one, slice):
            start = 0 if one.start is None else operator.index(one.start)
            step = 1 if one.step is None else operator.index(one.step)
            stop = None if one.stop is None else operator.index(one.stop)
            if start >= 0 and step > 0 and (stop is None or stop >= 0):
                count = _ALL if stop is None else len(range(start, stop, step))
                along.append((start, count, step))
                continue
        elif hasattr(one, "__index__") and not isinstance(one, (bool, np.bool_)):
            place = operator.index(one)
            if place >= 0:
                along.append((place, 1, 1))
                continue
        raise InvalidArgument(
            f"variable {name!r}: what is read ahead is chosen before its shape is known, by "
            f"integers from 0, slices of such, and `...` at the end, not by {one!r}"
        )
    return along or None


def read(native: _StepView, gets: Sequence[Get]) -> None:
    wanted = []
    for get in gets:
        buffer = get.buffer
        if buffer is None:
            get.take_texts(native.values(get.variable))
        else:
            wanted.append((get.variable, get.wanted, buffer))
    if wanted:
        native.get(wanted)


def _along(
    name: str, shape: tuple[int, ...], index: _Index
) -> tuple[list[tuple[int, int, int]], set[int]]:
    """Start, count and step along each dimension, and the dimensions that an integer takes away."""
    given = list(index) if isinstance(index, tuple) else [index]
    if sum(one is ... for one in given) > 1:
        raise IndexError("an index has one `...` at most")
    if not any(one is ... for one in given):
        given.append(...)
    if len(given) - 1 > len(shape):
        raise IndexError(
            f"variable {name!r} has {len(shape)} dimensions, and {len(given) - 1} were indexed"
        )
    at = next(place for place, one in enumerate(given) if one is ...)
    given[at : at + 1] = [slice(None)] * (len(shape) - len(given) + 1)
    along, dropped = [], set()
    for dimension, (one, length) in enumerate(zip(given, shape, strict=True)):
        if isinstance(one, slice):
            if one.step is not None and operator.index(one.step) < 1:
                raise IndexError(
                    f"variable {name!r}, dimension {dimension}: slices have positive steps here; "
                    f"reverse what was read"
                )
            start, stop, step = one.indices(length)
            along.append((start, len(range(start, stop, step)), step))
            continue
        if isinstance(one, (bool, np.bool_)) or not hasattr(one, "__index__"):
            raise IndexError(
                f"variable {name!r} is indexed by integers, slices and `...`, not by {one!r}; "
                f"read a box and index that"
            )
        place = operator.index(one)  # type: ignore[arg-type]
        if not -length <= place < length:
            raise IndexError(
                f"variable {name!r}: index {place} of dimension {dimension}, which is {length} long"
            )
        along.append((place % length, 1, 1))
        dropped.add(dimension)
    return along, dropped
