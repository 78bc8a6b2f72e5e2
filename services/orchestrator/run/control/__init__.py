"""What decides when a run works: its state, its limits, its waits, and those who stop it."""
