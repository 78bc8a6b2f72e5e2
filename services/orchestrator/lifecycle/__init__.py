"""A run from its query to its end: admit, persist, execute, finish."""
