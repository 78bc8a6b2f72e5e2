"""State, limits, waits and stops of a run."""
