"""A run as its readers see it: `fold` keeps its state, and returns what each event changes of it."""
