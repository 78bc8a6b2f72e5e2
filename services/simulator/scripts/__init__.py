"""The script format, and the rule that fits a request."""
