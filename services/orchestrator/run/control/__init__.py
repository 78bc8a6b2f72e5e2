"""A run has a state, limits, waits and stops."""
