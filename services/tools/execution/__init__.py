"""Executing one call: effect records, artifacts, and the length of results."""
