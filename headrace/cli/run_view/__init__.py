"""Shows what a run does, at a terminal or as plain text."""
