"""Steps as datasets of xarray, of which nothing is read before it is used."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray
from xarray.backends import BackendArray
from xarray.core import indexing

if TYPE_CHECKING:
    from thalweg.steps import Step, Variable

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


def stacked(numbers: Sequence[int], step_of: Callable[[int], Step]) -> xarray.Dataset:
    """The dataset of the steps of a run, one behind the other along `step`."""
    first, last = step_of(numbers[0]), step_of(numbers[-1])
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
        read = _reader(name, variable, numbers, step_of)
        found[name] = xarray.Variable(dimensions, _lazy(shape, variable.dtype, read), each[name])
    return xarray.Dataset(found, attrs=whole)


def _reader(
    name: str, like: Variable, numbers: Sequence[int], step_of: Callable[[int], Step]
) -> Callable[[tuple[Any, ...]], Any]:
    def read(key: tuple[Any, ...]) -> Any:
        steps, inner = key[0], key[1:]
        if not isinstance(steps, slice):
            return step_of(numbers[steps])[name].read(inner)
        parts = [step_of(number)[name].read(inner) for number in numbers[steps]]
        if parts:
            return np.stack(parts)
        shape = np.empty(like.shape, bool)[inner].shape if like.shape else ()
        return np.empty((0, *shape), like.dtype)

    return read
