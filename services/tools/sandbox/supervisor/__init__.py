"""Supervises one command; standard library only, for a fast start."""
