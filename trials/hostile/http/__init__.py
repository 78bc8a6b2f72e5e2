"""Attacks over HTTP, on both facades."""
