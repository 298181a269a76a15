"""The sample: a real magnetic-resonance volume that the nibabel package ships.

It stands in for the object on the rotation stage. `volume()` returns it as
float32 of shape (rows, size, size): `rows` horizontal slices, each a square
with the rotation axis in its middle, scaled to [0, 1].
"""

from __future__ import annotations

from pathlib import Path

import nibabel
import numpy as np
from scipy import ndimage

SCALE = 3
"""Enlargement of the scan, so that a frame has the size of a small detector's."""


def volume() -> np.ndarray:
    path = Path(nibabel.__file__).parent / "tests" / "data" / "example4d.nii.gz"
    scan = np.asarray(nibabel.load(path).dataobj[..., 0], dtype=np.float32)
    scan = np.moveaxis(scan, 2, 0)  # (slice, x, y)
    scan = ndimage.zoom(scan, SCALE, order=1)
    rows, width, height = scan.shape
    size = max(width, height)
    square = np.zeros((rows, size, size), np.float32)
    left, top = (size - width) // 2, (size - height) // 2
    square[:, left : left + width, top : top + height] = scan
    # Only what stays inside the circle is seen from every angle.
    axis = np.arange(size) - (size - 1) / 2
    square[:, np.hypot(axis[:, None], axis[None, :]) > size / 2 - 1] = 0
    return square / square.max()


def project(sample: np.ndarray, angle: float) -> np.ndarray:
    """The frame that the detector sees at `angle` degrees: (rows, size), float32."""
    turned = ndimage.rotate(sample, angle, axes=(1, 2), reshape=False, order=1)
    return np.ascontiguousarray(turned.sum(axis=1), dtype=np.float32)
