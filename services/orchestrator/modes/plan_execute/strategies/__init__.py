"""The order in which a plan's tasks run."""
