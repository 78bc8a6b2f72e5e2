"""Preparation of a run before its first turn."""
