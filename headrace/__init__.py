"""The package that programs import: a client, stubs, errors, the fold of a run's events."""
