"""Bounded reads as tables and labelled arrays."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from thalweg import _arrays
from thalweg.exceptions import InvalidArgument

if TYPE_CHECKING:
    import pandas
    import pyarrow
    import xarray

    from thalweg import Event

# Columns that are no metadata. Those in the second line are there if an event has one.
_PLACES = ("_partition", "_offset", "_append_time")
_OPTIONAL = ("_time", "_key", "_data")
# Metadata that is no object with fields; as bytes if it is not JSON.
_WHOLE = "_metadata"


def _metadata(event: Event) -> Any:
    try:
        return event.metadata
    except InvalidArgument:
        return event.metadata_bytes


def _rows(events: Iterable[Event]) -> Iterator[tuple[dict[str, Any], Event]]:
    for event in events:
        metadata = _metadata(event)
        if metadata is None:
            metadata = {}
        elif not isinstance(metadata, Mapping):
            metadata = {_WHOLE: metadata}
        elif taken := [name for name in (*_PLACES, *_OPTIONAL) if name in metadata]:
            raise InvalidArgument(
                f"metadata of event {event.id} has a field {taken[0]}, which is a column of the event's own"
            )
        yield dict(metadata), event


def _columns(events: Iterable[Event], value: Any, flat: bool) -> tuple[dict[str, list[Any]], int]:
    """The columns, as many values in each as there are events, None where an event has none."""
    columns: dict[str, list[Any]] = {name: [] for name in (*_PLACES, *_OPTIONAL)}
    fields: dict[str, list[Any]] = {}
    count = 0
    for metadata, event in _rows(events):
        columns["_partition"].append(event.id.partition)
        columns["_offset"].append(event.id.offset)
        columns["_append_time"].append(event.append_time)
        columns["_time"].append(event.time)
        columns["_key"].append(event.key)
        columns["_data"].append(value(event))
        for name, field in _flat(metadata) if flat else metadata.items():
            column = fields.setdefault(name, [])
            if len(column) > count:
                raise InvalidArgument(
                    f"metadata of event {event.id} has {name!r} twice, once as a field of a field"
                )
            column.extend([None] * (count - len(column)))
            column.append(field)
        count += 1
    for column in fields.values():
        column.extend([None] * (count - len(column)))
    for name in _OPTIONAL:
        if all(one is None for one in columns[name]):
            del columns[name]
    return {**fields, **columns}, count


def _flat(metadata: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, Any]]:
    """Fields of fields as `outer.inner`."""
    for name, value in metadata.items():
        if isinstance(value, Mapping) and value:
            yield from _flat(value, f"{before}{name}.")
        else:
            yield f"{before}{name}", value


def _is_array(event: Event) -> bool:
    metadata = _metadata(event)
    return isinstance(metadata, Mapping) and {"dtype", "shape"} <= metadata.keys()


def _bytes(event: Event) -> bytes | None:
    return bytes(event.data) if event.data_size else None


def _array_or_bytes(event: Event) -> Any:
    if not event.data_size and not _is_array(event):
        return None
    if not _is_array(event):
        return bytes(event.data)
    try:
        # A copy: what is kept keeps the whole batch that it came with.
        return event.array().copy()
    except (TypeError, ValueError):
        # It is compressed, say, or a part: its metadata speaks of another form.
        return bytes(event.data)


def _nothing(_event: Event) -> None:
    return None


def to_arrow(events: Iterable[Event], with_data: bool) -> pyarrow.Table:
    """What ``Reader.to_arrow`` gives."""
    import pyarrow as pa

    columns, _ = _columns(events, _bytes if with_data else _nothing, flat=False)
    kinds = {
        "_partition": pa.uint32(),
        "_offset": pa.uint64(),
        "_append_time": pa.timestamp("ns", "UTC"),
        "_time": pa.timestamp("ns", "UTC"),
        "_key": pa.binary(),
        "_data": pa.large_binary(),
    }
    arrays = {}
    for name, values in columns.items():
        try:
            arrays[name] = pa.array(values, kinds.get(name))
        except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError) as error:
            raise InvalidArgument(
                f"metadata field {name!r} is not of one type in all events: {error}. "
                f"to_pandas() takes it as it is"
            ) from error
    return pa.table(arrays)


def to_pandas(events: Iterable[Event], with_data: bool) -> pandas.DataFrame:
    """What ``Reader.to_pandas`` gives."""
    import pandas as pd

    value = _array_or_bytes if with_data else _nothing
    columns, count = _columns(events, value, flat=True)
    series: dict[str, Any] = {}
    for name, values in columns.items():
        if name in ("_append_time", "_time"):
            stamps = [
                pd.NaT if one is None else pd.Timestamp(one, unit="ns", tz="UTC") for one in values
            ]
            series[name] = pd.Series(stamps, dtype="datetime64[ns, UTC]")
        elif name == "_data" or _would_round(values):
            series[name] = pd.Series(values, dtype=object)
        else:
            series[name] = pd.Series(values)
    return pd.DataFrame(series, index=pd.RangeIndex(count))


def to_xarray(events: Iterable[Event], with_data: bool) -> xarray.Dataset:
    """What ``Reader.to_xarray`` gives."""
    import xarray as xr

    first: list[Any] = []

    def frame(event: Event) -> Any:
        if not _is_array(event):
            if event.data_size:
                raise InvalidArgument(
                    f"event {event.id} has data that is no array: it was not pushed by push_array"
                )
            return None
        array = event.array()
        if first and (first[1].shape, first[1].dtype) != (array.shape, array.dtype):
            raise InvalidArgument(
                f"event {event.id} is an array of shape {array.shape} and dtype {array.dtype}, "
                f"{first[0]} one of {first[1].shape} and {first[1].dtype}: one variable has one shape"
            )
        copied = array.copy()
        if not first:
            first.extend((event.id, copied))
        return copied

    columns, count = _columns(events, frame if with_data else _nothing, flat=True)
    frames = columns.pop("_data", None)
    variables = {}
    if frames is not None:
        if missing := [at for at, one in enumerate(frames) if one is None]:
            offset, partition = columns["_offset"][missing[0]], columns["_partition"][missing[0]]
            raise InvalidArgument(
                f"event {offset} of partition {partition} has no array, others have one"
            )
        dims = ["event", *(f"dim_{axis}" for axis in range(first[1].ndim))]
        variables["data"] = (dims, np.stack(frames))
    if taken := columns.keys() & {"event", "data"}:
        raise InvalidArgument(
            f"metadata field {min(taken)!r} has the name of a part of the dataset: "
            f"to_pandas() takes it"
        )
    coordinates: dict[str, Any] = {}
    for name, values in columns.items():
        # What the variable says itself.
        if frames is not None and name in ("dtype", "shape", "order"):
            continue
        if name in ("_append_time", "_time"):
            nanoseconds = [
                np.datetime64("NaT") if one is None else np.datetime64(one, "ns") for one in values
            ]
            coordinates[name] = ("event", np.array(nanoseconds, dtype="datetime64[ns]"))
        else:
            coordinates[name] = ("event", _labels(values))
    coordinates["event"] = np.arange(count)
    return xr.Dataset(variables, coords=coordinates)


def _would_round(values: list[Any]) -> bool:
    """Whether numbers would change by being floats, which they are where some are missing."""
    kinds = {type(value) for value in values}
    if int not in kinds or not kinds & {float, type(None)}:
        return False
    return any(type(value) is int and abs(value) > 2**53 for value in values)


def _labels(values: list[Any]) -> np.ndarray[Any, Any]:
    """Numbers where all are, None being NaN; else objects."""
    kinds = {type(value) for value in values}
    if kinds in ({int}, {float}, {bool}):
        return np.array(values)
    if (
        kinds <= {int, float, type(None)}
        and kinds & {int, float}
        and not _would_round(values)
    ):
        return np.array([np.nan if value is None else value for value in values], dtype=float)
    if kinds == {str}:
        return np.array(values)
    labels: np.ndarray[Any, Any] = np.empty(len(values), dtype=object)
    labels[:] = values
    return labels
