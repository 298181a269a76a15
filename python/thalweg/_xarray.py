"""Steps as datasets of xarray, of which nothing is read before it is used."""

from __future__ import annotations

import math
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray
from xarray.backends import BackendArray
from xarray.core import indexing

from thalweg.exceptions import InvalidArgument

if TYPE_CHECKING:
    from thalweg.steps import Step, StoredRun, Variable

DIMENSIONS = "_ARRAY_DIMENSIONS"


class _Lazy(BackendArray):
    """An array of which boxes are read when they are asked for."""

    def __init__(
        self, shape: Sequence[int], dtype: np.dtype[Any], read: Callable[[tuple[Any, ...]], Any]
    ) -> None:
        self.shape = tuple(shape)
        self.dtype = dtype
        self._read = read

    def __getitem__(self, key: Any) -> Any:
        support = indexing.IndexingSupport.BASIC
        return indexing.explicit_indexing_adapter(key, self.shape, support, self._boxed)

    def _boxed(self, key: tuple[Any, ...]) -> Any:
        forward, flip = [], []
        for one, length in zip(key, self.shape, strict=True):
            if isinstance(one, slice) and one.step is not None and one.step < 0:
                places = range(length)[one][::-1]
                one = slice(places.start, places.stop, places.step) if places else slice(0, 0)
                flip.append(slice(None, None, -1))
            elif isinstance(one, slice):
                flip.append(slice(None))
            forward.append(one)
        return np.asarray(self._read(tuple(forward)))[tuple(flip)]


def _dimensions(step: Step, name: str, count: int) -> list[str]:
    said = step.attrs.get(f"{name}/{DIMENSIONS}")
    if isinstance(said, list) and len(said) == count:
        return said
    return [f"{name}_dim_{number}" for number in range(count)]


def _attributes(step: Step) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
    """Those of the dataset, and those of each variable."""
    whole: dict[str, Any] = {}
    each: dict[str, dict[str, Any]] = {name: {} for name in step}
    for name, value in step.attrs.items():
        owner, _, own = name.rpartition("/")
        if owner in each:
            if own != DIMENSIONS:
                each[owner][own] = value
        else:
            whole[name] = value
    return whole, each


def _lazy(shape: Sequence[int], dtype: np.dtype[Any], read: Callable[[Any], Any]) -> Any:
    return indexing.LazilyIndexedArray(_Lazy(shape, dtype, read))


def dataset(step: Step) -> xarray.Dataset:
    """The dataset of a step."""
    whole, each = _attributes(step)
    found = {}
    for name, variable in step.items():
        if variable.kind == "local":
            continue
        dimensions = _dimensions(step, name, variable.ndim)
        if variable.dtype.hasobject:
            data: Any = variable[...]
        else:
            data = _lazy(variable.shape, variable.dtype, variable.read)
        found[name] = xarray.Variable(dimensions, data, each[name])
    return xarray.Dataset(found, attrs=whole)


def stacked(stored: StoredRun, chunks: Mapping[str, int] | None) -> xarray.Dataset:
    """The dataset of the steps of a run, one behind the other along `step`."""
    numbers = stored.numbers
    first, last = stored[0], stored[-1]
    whole, each = _attributes(last)
    found = {"step": xarray.Variable(["step"], np.array(numbers, np.int64))}
    for name, variable in last.items():
        if name not in first or variable.kind == "local" or name == "step":
            continue
        other = first[name]
        if (other.kind, other.shape, other.dtype) != (variable.kind, variable.shape, variable.dtype):
            continue
        dimensions = ["step", *_dimensions(last, name, variable.ndim)]
        shape = (len(numbers), *variable.shape)
        read = _Stacked(stored, name, variable.shape, variable.dtype)
        lazy = _lazy(shape, variable.dtype, read)
        found[name] = xarray.Variable(dimensions, lazy, each[name])
        if chunks is not None:
            lengths = dict(zip(dimensions, [1, *_grid(variable)], strict=True))
            lengths |= {name: length for name, length in chunks.items() if name in lengths}
            # What dask makes of it goes by this name: no two runs are taken for one.
            token = f"{name}-{uuid.uuid4().hex}"
            found[name] = found[name].chunk(lengths, name=token)
    if unknown := set(chunks or {}) - {name for one in found.values() for name in one.dims}:
        raise InvalidArgument(f"chunks are of {sorted(map(str, unknown))}, which are no dimensions")
    return xarray.Dataset(found, attrs=whole)


def _grid(variable: Variable) -> list[int | tuple[int, ...]]:
    """Lengths along each dimension that have the blocks apart; all of it, if they are no grid."""
    blocks = variable.blocks
    if variable.kind not in ("array", "joined"):
        return [-1] * variable.ndim
    along = []
    for at, length in enumerate(variable.shape):
        ends = {one.start[at] + one.shape[at] for one in blocks} | {one.start[at] for one in blocks}
        edges = sorted({0, length} | {end for end in ends if end < length})
        along.append(tuple(np.diff(edges).tolist()) or (0,))
    if math.prod(map(len, along)) > 2 * len(blocks):
        return [-1] * variable.ndim
    return list(along)


class _Stacked:
    """Reads a box of all steps. It may be pickled: dask's workers do."""

    def __init__(
        self, stored: StoredRun, name: str, shape: tuple[int, ...], dtype: np.dtype[Any]
    ) -> None:
        self.stored, self.name, self.shape, self.dtype = stored, name, shape, dtype

    def __call__(self, key: tuple[Any, ...]) -> Any:
        steps, inner = key[0], key[1:]
        if not isinstance(steps, slice):
            return self.stored[steps][self.name].read(inner)
        parts = [step[self.name].read(inner) for step in self.stored[steps]]
        if parts:
            return np.stack(parts)
        shape = np.empty(self.shape, bool)[inner].shape if self.shape else ()
        return np.empty((0, *shape), self.dtype)
