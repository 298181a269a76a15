"""Images as flatbuffers, as the ZeroMQ pipeline sends them.

The table is that of streaming tomography at the Advanced Photon Source, with
the time at which the image was handed over behind its own fields:

    0 seq: int, 1 dims: (z, y, x: int), 2 rotation: float, 3 center: float,
    4 uniqueId: int, 5 itype: byte, 6 tdata: [ubyte], 7 time: long
"""

from __future__ import annotations

from dataclasses import dataclass

import flatbuffers
import numpy as np
from flatbuffers import encode, number_types, packer
from flatbuffers.table import Table

PROJECTION, WHITE, DARK = 1, 2, 3


@dataclass
class Image:
    """An image; its pixels lie in the message that it came in."""

    pixels: np.ndarray
    rotation: float
    center: float
    number: int
    kind: int
    time: int


class ImageMessages:
    """Makes messages, in memory that is used again, as the original's serializer does."""

    def __init__(self) -> None:
        self._builder = flatbuffers.Builder(0)

    def message(self, image: np.ndarray, kind: int, number: int, rotation: float, center: float, time: int,
                as_view: bool = False) -> bytes | memoryview:
        """An image of shape (z, y, x) as bytes. The pixels are copied into bytes,
        into the builder, and out of it; with `as_view` the last copy is left
        out, and the view is valid until the next message is made.
        """
        builder = self._builder
        _empty(builder)
        pixels = image.tobytes()
        builder.StartVector(1, len(pixels), 1)
        builder.head -= len(pixels)
        builder.Bytes[builder.head : builder.head + len(pixels)] = pixels
        data = builder.EndVector()
        builder.StartObject(8)
        builder.PrependInt32Slot(0, number, 0)
        builder.Prep(4, 12)
        for extent in reversed(image.shape):
            builder.PrependInt32(extent)
        builder.PrependStructSlot(1, builder.Offset(), 0)
        builder.PrependFloat32Slot(2, rotation, 0)
        builder.PrependFloat32Slot(3, center, 0)
        builder.PrependInt32Slot(4, number, 0)
        builder.PrependInt8Slot(5, kind, 0)
        builder.PrependUOffsetTRelativeSlot(6, data, 0)
        builder.PrependInt64Slot(7, time, 0)
        builder.Finish(builder.EndObject())
        return memoryview(builder.Bytes)[builder.Head() :] if as_view else bytes(builder.Output())


def _empty(builder: flatbuffers.Builder) -> None:
    """Readies a builder for the next message without letting its memory go."""
    builder.head = len(builder.Bytes)
    builder.current_vtable = None
    builder.minalign = 1
    builder.objectEnd = None
    builder.vtables = {}
    builder.nested = False
    builder.finished = False


def image_of(message: bytes | bytearray | memoryview, dtype: type = np.float32) -> Image:
    """The image in a message, without a copy."""
    table = Table(message, encode.Get(packer.uoffset, message, 0))

    def field(slot: int, flags: type, default: float = 0) -> float:
        offset = number_types.UOffsetTFlags.py_type(table.Offset(4 + 2 * slot))
        return table.Get(flags, table.Pos + offset) if offset else default

    dims = table.Pos + table.Offset(4 + 2)
    shape = [table.Get(number_types.Int32Flags, dims + 4 * axis) for axis in range(3)]
    vector = table.Offset(4 + 2 * 6)
    pixels = np.frombuffer(message, np.uint8, table.VectorLen(vector), table.Vector(vector))
    return Image(
        pixels=pixels.view(dtype).reshape(shape),
        rotation=field(2, number_types.Float32Flags),
        center=field(3, number_types.Float32Flags),
        number=int(field(4, number_types.Int32Flags)),
        kind=int(field(5, number_types.Int8Flags)),
        time=int(field(7, number_types.Int64Flags)),
    )
