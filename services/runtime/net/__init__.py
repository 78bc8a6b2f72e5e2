"""Decides which hosts may be reached, and connects only to those."""
