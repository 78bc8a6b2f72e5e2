"""One model call: attempts until one has reached the caller."""
