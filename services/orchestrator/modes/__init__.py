"""How a run comes to its answer, one file for each mode."""
