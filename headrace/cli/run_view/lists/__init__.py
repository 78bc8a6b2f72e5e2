"""Lists, in columns."""
