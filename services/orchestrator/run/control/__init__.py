"""State, gates and stops of a run."""
