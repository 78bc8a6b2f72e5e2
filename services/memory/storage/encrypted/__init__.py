"""Handling of encrypted texts, shared by both engines."""
