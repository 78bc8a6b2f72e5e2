"""The plan of a run and its changes."""
