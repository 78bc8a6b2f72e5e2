"""Events go from a run to its readers, numbered and kept."""
