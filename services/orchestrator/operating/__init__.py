"""Operators' RPCs: they inspect runs and act on them."""
