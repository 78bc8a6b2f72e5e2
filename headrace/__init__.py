"""A client with its stubs, errors and the fold of a run's events."""
