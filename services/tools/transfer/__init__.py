"""Moves files in and out of workspaces, for callers outside a run."""
