"""The Python client, with its stubs, its errors and the fold of a run's events."""
