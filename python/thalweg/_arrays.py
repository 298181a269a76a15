"""Data of events as numpy arrays."""

from __future__ import annotations

import math
import operator
from typing import Any

import numpy as np


def array(data: memoryview, dtype: Any, shape: Any) -> np.ndarray[Any, Any]:
    """A view of ``data`` as an array; one dimension may be -1.

    Raises:
        ValueError: the data has another length than the array.
    """
    kind = np.dtype(np.uint8 if dtype is None else dtype)
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
    return np.ndarray((data.nbytes // kind.itemsize,), kind, data).reshape(wanted)
