"""Decides which addresses and hosts may be reached."""
