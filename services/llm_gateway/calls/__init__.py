"""One model call: attempts until one reaches the caller."""
