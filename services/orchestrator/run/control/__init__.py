"""State, limits, gates and stops of a run."""
