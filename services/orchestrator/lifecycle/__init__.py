"""The lifecycle of a run: admit, persist, execute, finish."""
