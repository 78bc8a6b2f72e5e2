"""Messages of a model request: read from the log, by context, and paired."""
