"""Showing what a run does, for people at a terminal and as plain text."""
