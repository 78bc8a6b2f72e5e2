"""Several orchestrators: takeover of runs, and calls forwarded to a run's owner."""
