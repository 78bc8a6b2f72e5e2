"""Executing one call: the record that keeps an effect from happening twice, the artifacts, the length of the result."""
