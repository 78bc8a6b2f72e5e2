"""Moves files for callers outside a run."""
