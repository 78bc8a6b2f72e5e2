"""Replay of a run that goes on here, from its recording."""
