"""Mofka's Python API on Thalweg: see `mochi.mofka.client`."""

from thalweg_mofka.shadow import refuse

refuse("mochi.mofka", ("pymofka_client",), __file__)
