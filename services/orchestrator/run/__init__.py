"""Live runs: their state, events, log and budget."""
