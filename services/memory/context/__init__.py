"""Messages of a model request: read from the log, paired, counted, and cut to the model's window."""
