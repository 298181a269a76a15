"""Values that are an attribute in one dialect and a method in another."""

from __future__ import annotations

__all__ = ["AdaptiveBatchSize", "Count", "Flag"]

#: The batch size that means: send what has gathered as soon as the line is free.
AdaptiveBatchSize = 2**64 - 1


class Count(int):
    """A number that may also be called: `producer.batch_size`, `producer.batch_size()`."""

    def __call__(self) -> int:
        return int(self)


class Flag(int):
    """A truth that may also be called: `future.completed`, `future.completed()`."""

    def __call__(self) -> bool:
        return bool(self)

    def __repr__(self) -> str:
        return repr(bool(self))
