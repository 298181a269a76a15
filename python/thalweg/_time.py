"""Points in time as nanoseconds since 1970."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


def nanoseconds(time: object) -> int:
    """The nanoseconds since 1970 of an aware datetime, to its microsecond."""
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
    return (time - _EPOCH) // timedelta(microseconds=1) * 1000
