"""The plugins of energy.c in Python: a validator, a partition selector and a
serializer for events whose metadata is ``{"energy": NUMBER}``.

Put this file where Python finds modules (``PYTHONPATH``), and name them
``energy:EnergyValidator`` and so on.
"""

from __future__ import annotations

import json
import math
import struct
from typing import Any

from thalweg.plugins import PartitionSelector, Serializer, Validator


def read_energy(metadata: bytes) -> float:
    """The energy, or a ``ValueError``."""
    document = json.loads(metadata)
    if isinstance(document, dict) and list(document) == ["energy"]:
        energy = document["energy"]
        if isinstance(energy, (int, float)) and not isinstance(energy, bool):
            if math.isfinite(energy):
                return float(energy)
    raise ValueError('expected {"energy": a number}')


def read_energy_max(options: dict[str, Any]) -> float:
    energy_max = options.get("energy_max")
    if list(options) != ["energy_max"] or not isinstance(energy_max, (int, float)) or energy_max <= 0:
        raise ValueError('expected {"energy_max": a number above 0}')
    return float(energy_max)


class EnergyValidator(Validator):
    """Refuses energies that are not from 0 to ``energy_max``."""

    def __init__(self, options: dict[str, Any]) -> None:
        super().__init__(options)
        self.energy_max = read_energy_max(options)

    def validate(self, metadata: bytes) -> None:
        energy = read_energy(metadata)
        if not 0 <= energy <= self.energy_max:
            raise ValueError(f"energy {energy:g} is not from 0 to {self.energy_max:g}")


class EnergySelector(PartitionSelector):
    """Cuts 0 to ``energy_max`` into as many equal ranges as there are partitions."""

    def __init__(self, options: dict[str, Any]) -> None:
        super().__init__(options)
        self.energy_max = read_energy_max(options)

    def select(self, metadata: bytes, key: bytes | None, partition_count: int) -> int:
        part = math.floor(read_energy(metadata) / self.energy_max * partition_count)
        return min(max(part, 0), partition_count - 1)


class EnergySerializer(Serializer):
    """Stores and sends the 8 bytes of a double instead of the text."""

    def serialize(self, metadata: bytes) -> bytes:
        return struct.pack("<d", read_energy(metadata))

    def deserialize(self, data: bytes) -> bytes:
        (energy,) = struct.unpack("<d", data)
        return json.dumps({"energy": energy}).encode()
