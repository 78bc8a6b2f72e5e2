"""The package that programs import to use Headrace: a client, stubs, errors, the fold of a run's events."""
