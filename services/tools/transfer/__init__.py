"""Uploads and downloads of files, for callers outside a run."""
