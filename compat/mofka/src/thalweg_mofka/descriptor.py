"""Which bytes of an event's data are meant: views, and views of views.

What a caller of Mofka expects of bounds holds: a sub-view that leaves them is
cut, a stride or a list of segments that does is refused. Views nest: each
counts bytes within the view that it is taken of.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeAlias

from thalweg_mofka.errors import ClientException

__all__ = ["DataDescriptor"]

_Segments: TypeAlias = tuple[tuple[int, int], ...]


class DataDescriptor:
    """A selection of bytes of one event's data.

    `DataDescriptor(location, size)` is all of `size` bytes, `DataDescriptor()`
    nothing. Descriptors don't change.
    """

    __slots__ = ("_location", "_segments", "_size")

    def __init__(self, location: str | bytes = "", size: int = 0) -> None:
        if size < 0:
            raise ClientException(f"a descriptor of {size} bytes")
        self._location = location
        self._size = int(size)
        self._segments: _Segments = ((0, self._size),) if size else ()

    @classmethod
    def _made(cls, location: str | bytes, segments: Iterable[tuple[int, int]]) -> DataDescriptor:
        made = cls(location)
        made._segments = _joined(segments)
        made._size = sum(size for _, size in made._segments)
        return made

    @staticmethod
    def Null() -> DataDescriptor:
        """The descriptor of no bytes."""
        return DataDescriptor()

    @staticmethod
    def From(location: str | bytes, size: int) -> DataDescriptor:
        """The descriptor of all of `size` bytes."""
        return DataDescriptor(location, size)

    @property
    def size(self) -> int:
        """How many bytes are selected."""
        return self._size

    @property
    def location(self) -> str | bytes:
        """Where the event's data lies: the server's own word for it."""
        return self._location

    def flatten(self) -> list[tuple[int, int]]:
        """The selection as `(offset, size)` pairs, in bytes of the event's whole data."""
        return list(self._segments)

    def make_sub_view(self, offset: int, size: int) -> DataDescriptor:
        """The `size` bytes of this view from `offset` on; what is not there is cut off."""
        if offset < 0 or size < 0:
            raise ClientException(f"a view of {size} bytes at {offset}")
        return self._made(self._location, self._slice(offset, size))

    def make_stride_view(
        self,
        offset: int,
        num_blocks: int | None = None,
        block_size: int | None = None,
        gap_size: int | None = None,
        *,
        numblocks: int | None = None,
        blocksize: int | None = None,
        gapsize: int | None = None,
    ) -> DataDescriptor:
        """`num_blocks` blocks of `block_size` bytes, the first at `offset`, with
        `gap_size` bytes behind each. Raises if that leaves this view; the gap
        behind the last block counts.
        """
        count = num_blocks if num_blocks is not None else numblocks
        block = block_size if block_size is not None else blocksize
        gap = gap_size if gap_size is not None else gapsize
        if count is None or block is None or gap is None:
            raise TypeError("make_stride_view needs offset, num_blocks, block_size and gap_size")
        if min(offset, count, block, gap) < 0:
            raise ClientException(f"a stride of {count} blocks of {block} bytes, {gap} apart, at {offset}")
        end = offset + count * (block + gap)
        if end > self._size:
            raise ClientException(f"the stride ends at {end}, the view has {self._size} bytes")
        parts = (self._slice(offset + i * (block + gap), block) for i in range(count))
        return self._made(self._location, (segment for part in parts for segment in part))

    def make_unstructured_view(self, segments: Sequence[tuple[int, int]]) -> DataDescriptor:
        """The `(offset, size)` segments of this view, which ascend and do not
        overlap. Raises if they do not, or if one leaves this view.
        """
        chosen: list[tuple[int, int]] = []
        reached = 0
        for offset, size in segments:
            if offset < reached or size < 0:
                raise ClientException(
                    f"the segment of {size} bytes at {offset} begins before {reached}, where the one before ends"
                )
            reached = offset + size
            if reached > self._size:
                raise ClientException(f"a segment ends at {reached}, the view has {self._size} bytes")
            chosen.extend(self._slice(offset, size))
        return self._made(self._location, chosen)

    makeSubView = make_sub_view
    makeStridedView = make_stride_view
    makeUnstructuredView = make_unstructured_view

    def _slice(self, offset: int, size: int) -> list[tuple[int, int]]:
        """The bytes from `offset` on, as far as they are there, in bytes of the whole."""
        found: list[tuple[int, int]] = []
        end = offset + size
        position = 0
        for begin, length in self._segments:
            first, last = max(offset, position), min(end, position + length)
            if first < last:
                found.append((begin + first - position, last - first))
            position += length
            if position >= end:
                break
        return found

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, DataDescriptor):
            return NotImplemented
        return self._segments == other._segments and self._location == other._location

    def __hash__(self) -> int:
        return hash((self._location, self._segments))

    def __repr__(self) -> str:
        return f"DataDescriptor({self._size} bytes in {len(self._segments)} segments)"


def _joined(segments: Iterable[tuple[int, int]]) -> _Segments:
    """The segments without empty ones, neighbours joined."""
    joined: list[tuple[int, int]] = []
    for offset, size in segments:
        if size == 0:
            continue
        if joined and joined[-1][0] + joined[-1][1] == offset:
            joined[-1] = (joined[-1][0], joined[-1][1] + size)
        else:
            joined.append((offset, size))
    return tuple(joined)
