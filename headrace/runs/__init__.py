"""A run as its readers see it: `fold` keeps its state and returns the changes made by each event."""
