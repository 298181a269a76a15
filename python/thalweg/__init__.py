"""Thalweg: persistent event streaming for HPC and experimental science."""

from thalweg._thalweg import __version__

__all__ = ["__version__"]
