"""Converts providers' refusals into our errors."""
