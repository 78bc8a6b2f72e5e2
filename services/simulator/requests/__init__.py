"""Requests in no provider's form, and the log of them for tests."""
