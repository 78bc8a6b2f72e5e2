"""A run's state, limits, waits and stops."""
