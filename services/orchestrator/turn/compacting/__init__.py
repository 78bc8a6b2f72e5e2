"""Compaction of a context: when, with which files, and what it costs the run."""
