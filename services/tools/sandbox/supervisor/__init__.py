"""Supervises and confines one command; standard library only, for a fast start."""
