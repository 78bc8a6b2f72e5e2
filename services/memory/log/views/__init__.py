"""What is folded from the lines of a log."""
