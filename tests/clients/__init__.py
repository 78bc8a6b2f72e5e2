"""Clients of other vendors against a running suite, whose provider is scripted."""
