"""Several orchestrators: takeover of runs, and calls forwarded to the owner of a run."""
