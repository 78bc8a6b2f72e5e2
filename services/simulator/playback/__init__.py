"""Writes a reply to its client, with pace, silence and broken connections."""
