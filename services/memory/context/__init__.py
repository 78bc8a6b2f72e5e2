"""The messages of a model request: made from the log, paired, counted, and cut to the model's window."""
