"""Compaction of a context: its timing, its files, and its cost for the run."""
