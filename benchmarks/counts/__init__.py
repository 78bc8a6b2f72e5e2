"""What a run, a delta and an attach cost in calls, files, statements and bytes: the same on every machine."""
