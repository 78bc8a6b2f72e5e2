"""The simulator's protocols; a new one needs a folder and an entry in registry.py."""
