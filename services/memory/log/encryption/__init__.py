"""Encrypted lines of a log."""
