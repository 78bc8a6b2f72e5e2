"""Runs owned by other orchestrators: takeover and forwarding."""
