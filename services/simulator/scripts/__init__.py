"""The script format, and the choice of a rule."""
