"""Decides which hosts may be reached."""
