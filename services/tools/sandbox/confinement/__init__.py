"""Confines a forked process; standard library only, for a fast start."""
