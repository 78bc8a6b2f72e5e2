"""Requests to the simulated model, in no provider's form, and the log of them that tests read."""
