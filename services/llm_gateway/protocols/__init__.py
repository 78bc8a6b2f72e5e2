"""Provider protocols; a new one is a folder and one line of registry.py."""
