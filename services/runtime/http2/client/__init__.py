"""Channels, their connections and calls."""
