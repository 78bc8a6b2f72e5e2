"""Uploads and downloads: files of a workspace for callers outside a run."""
