"""The protocols that providers speak; a new one is a folder here and one line of registry.py."""
