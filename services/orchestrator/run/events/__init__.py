"""Events on their way to readers, numbered and kept."""
