"""The simulator's protocols; a new one is a folder and an entry of registry.py."""
