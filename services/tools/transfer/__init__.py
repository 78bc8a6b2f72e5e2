"""Transfers files for callers outside a run."""
