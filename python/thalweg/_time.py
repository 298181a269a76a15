"""Points in time as nanoseconds since 1970."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


def nanoseconds(time: object) -> int:
    """The nanoseconds since 1970 of an aware datetime, to its microsecond."""
    if not isinstance(time, datetime):
        raise TypeError(
            f"time is nanoseconds since 1970 or an aware datetime, not {type(time).__name__} {time!r}"
        )
    if time.tzinfo is None:
        raise ValueError(f"time {time!r} has no time zone, so it is no point in time")
    return (time - _EPOCH) // timedelta(microseconds=1) * 1000
