"""Points in time as nanoseconds since 1970."""

from __future__ import annotations

import time as clock
from datetime import datetime, timedelta, timezone

import numpy as np

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_MICROSECOND = timedelta(microseconds=1)


def point(time: object) -> int:
    """The nanoseconds since 1970 of a point in time, or of so long ago as a timedelta is."""
    if isinstance(time, float):
        raise TypeError(
            f"a place is no float ({time!r}): an aware datetime or a datetime64 is a time, a "
            f"timedelta is so long ago, and an int is an offset"
        )
    if not isinstance(time, (timedelta, np.timedelta64)):
        return nanoseconds(time)
    if isinstance(time, np.timedelta64):
        if np.isnat(time):
            raise ValueError("a timedelta says how long ago, and NaT says nothing")
        ago = int(time.astype("timedelta64[ns]").astype(np.int64))
        if time.astype("timedelta64[ns]").astype("timedelta64[D]") != time.astype("timedelta64[D]"):
            raise ValueError(f"{time!r} is longer than nanoseconds can count, 292 years")
    else:
        ago = time // _MICROSECOND * 1000
    if ago < 0:
        raise ValueError(f"a timedelta says how long ago, so it is not negative: {time!r}")
    return max(clock.time_ns() - ago, 0)


def nanoseconds(time: object) -> int:
    """The nanoseconds since 1970 of an aware datetime, to its microsecond, or of a
    datetime64, which is UTC as numpy has it.
    """
    if isinstance(time, np.datetime64):
        if np.isnat(time):
            raise ValueError("time is NaT, which is no point in time")
        since = int(time.astype("datetime64[ns]").astype(np.int64))
        if time.astype("datetime64[ns]").astype("datetime64[D]") != time.astype("datetime64[D]"):
            raise ValueError(f"time {time!r} is beyond what nanoseconds can count: 1678 to 2262")
        if since < 0:
            raise ValueError(f"time is 1970 or later, not {time!r}")
        return since
    if isinstance(time, float):
        raise TypeError(
            f"time is nanoseconds since 1970 or an aware datetime, not the float {time!r}: "
            f"time.time_ns() is now, and int(seconds * 1e9) makes nanoseconds of seconds"
        )
    if isinstance(time, int):
        raise ValueError(f"time is nanoseconds since 1970, from 0 to 2**64 - 1, not {time}")
    if not isinstance(time, datetime):
        raise TypeError(
            f"time is nanoseconds since 1970 or an aware datetime, not {type(time).__name__} {time!r}"
        )
    if time.tzinfo is None:
        raise ValueError(
            f"time {time!r} has no time zone, so it is no point in time: astimezone() makes it one "
            f"of this machine's, replace(tzinfo=timezone.utc) one of UTC"
        )
    return (time - _EPOCH) // _MICROSECOND * 1000
