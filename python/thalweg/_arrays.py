"""Data of events as numpy arrays, and arrays as events."""

from __future__ import annotations

import math
import operator
from collections.abc import Mapping
from typing import Any

import numpy as np

from thalweg.exceptions import InvalidArgument

# What the metadata of an array says of it.
_FIELDS = ("dtype", "shape", "order")


def array(data: memoryview, dtype: Any, shape: Any, order: Any = None) -> np.ndarray[Any, Any]:
    """A view of ``data`` as an array; one dimension may be -1.

    Args:
        dtype: what numpy takes for one, or what ``event_of`` made of one; None is bytes.
        shape: None is one dimension of all there is.
        order: "F" if the first index changes fastest, as ``event_of`` says it.

    Raises:
        ValueError: the data has another length than the array.
    """
    kind = _dtype(dtype)
    if shape is None:
        wanted: tuple[int, ...] = (-1,)
    elif isinstance(shape, (tuple, list, np.ndarray)):
        wanted = tuple(operator.index(length) for length in shape)
    else:
        wanted = (operator.index(shape),)
    if -1 in wanted:
        fits = kind.itemsize > 0 and data.nbytes % kind.itemsize == 0
    else:
        fits = math.prod(wanted) * kind.itemsize == data.nbytes
    if not fits:
        raise ValueError(
            f"{data.nbytes} bytes of data are no array of shape {wanted} and dtype {kind}"
        )
    flat: np.ndarray[Any, Any] = np.ndarray(
        (data.nbytes // kind.itemsize if kind.itemsize else 0,), kind, data
    )
    if order == "F" and -1 not in wanted:
        return flat.reshape(wanted[::-1]).T
    return flat.reshape(wanted)


def _dtype(dtype: Any) -> np.dtype[Any]:
    if dtype is None:
        return np.dtype(np.uint8)
    # JSON has made lists of the tuples of a structured type's description.
    kind = (
        np.lib.format.descr_to_dtype(_tuples(dtype)) if isinstance(dtype, list) else np.dtype(dtype)
    )
    if kind.hasobject:
        raise ValueError(f"dtype {kind} holds Python objects: bytes of a stream are none")
    return kind


def _tuples(descr: Any) -> Any:
    """A description of a dtype as it was before it was JSON."""
    if not isinstance(descr, list):
        return descr
    fields = []
    for field in descr:
        if not isinstance(field, (list, tuple)) or not 2 <= len(field) <= 3:
            raise ValueError(
                f"{descr!r} describes no dtype: each field is [name, type] or [name, type, shape]"
            )
        name, kind, *shape = field
        # A field's title and name are a pair.
        name = tuple(name) if isinstance(name, list) else name
        fields.append((name, _tuples(kind), *(tuple(lengths) for lengths in shape)))
    return fields


def stored(data: memoryview, metadata: Any) -> np.ndarray[Any, Any]:
    """The array that ``event_of`` made an event of.

    Raises:
        InvalidArgument: the metadata says of no array.
        ValueError: only a part of the data is here.
    """
    if not isinstance(metadata, Mapping) or not {"dtype", "shape"} <= metadata.keys():
        raise InvalidArgument(
            "the metadata of this event has no dtype and shape, so it was not pushed by push_array: "
            "event.numpy(dtype, shape) makes an array of its data all the same"
        )
    return array(data, metadata["dtype"], metadata["shape"], metadata.get("order"))


def event_of(
    value: Any, metadata: Mapping[str, Any] | None, fields: Mapping[str, Any]
) -> tuple[dict[str, Any], np.ndarray[Any, Any]]:
    """The metadata and data of an event that is an array.

    The metadata is ``metadata`` and ``fields``, with `dtype` (a str such as "<u2", or the list
    of a structured type's fields), `shape` (a list) and, if the array is Fortran's, `order`
    "F". The data is the array itself where its memory is in one piece, else a copy.

    Raises:
        InvalidArgument: bytes alone do not make this array again, or the metadata has a
            field of these names already, or is no mapping.
    """
    if isinstance(value, np.ma.MaskedArray):
        raise InvalidArgument(
            "a masked array has a mask beside its values: push_array(a.filled(...)), or two events"
        )
    if metadata is not None and not isinstance(metadata, Mapping):
        raise InvalidArgument(
            f"the metadata of an array is a mapping, to which dtype and shape are added, not "
            f"{type(metadata).__name__}"
        )
    whole = np.asarray(value)
    said = {**(metadata or {}), **fields}
    if taken := [name for name in _FIELDS if name in said]:
        raise InvalidArgument(f"push_array says {', '.join(taken)} of the array itself")
    if metadata and (twice := sorted(metadata.keys() & fields.keys())):
        raise InvalidArgument(f"{', '.join(twice)}: given in the metadata and as an argument")
    said["dtype"] = _description(whole.dtype)
    said["shape"] = list(whole.shape)
    if whole.flags.c_contiguous:
        return said, whole
    if whole.flags.f_contiguous:
        said["order"] = "F"
        return said, whole.T
    return said, np.ascontiguousarray(whole)


def _description(dtype: np.dtype[Any]) -> Any:
    if dtype.hasobject:
        raise InvalidArgument(
            f"an array of dtype {dtype} holds Python objects, not bytes: "
            f"array.astype(...) makes numbers or fixed-length text of them"
        )
    try:
        description = np.lib.format.dtype_to_descr(dtype)
        is_whole = np.lib.format.descr_to_dtype(description) == dtype
    except ValueError:
        # Fields that overlap, or are not in the order of their places.
        is_whole = False
    if not is_whole:
        raise InvalidArgument(
            f"dtype {dtype} can't be described in bytes of numpy's own types: push_array(a.view(...)), "
            f"and say in the metadata what it is"
        )
    return description
