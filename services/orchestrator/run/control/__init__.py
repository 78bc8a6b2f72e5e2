"""State, waits and stops of a run."""
