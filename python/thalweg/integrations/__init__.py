"""Thalweg in place of what other packages bring: each module needs its package."""
