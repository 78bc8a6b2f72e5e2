"""Displays a run at a terminal or as plain text."""
