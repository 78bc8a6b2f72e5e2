"""Replay of a run that goes on here: its recording, and the resets that readers get."""
