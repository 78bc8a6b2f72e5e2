"""Executes one call."""
