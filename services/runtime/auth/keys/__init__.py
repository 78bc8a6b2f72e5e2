"""API keys: those of a file, and those that memory stores."""
