"""Provider protocols; a new one needs a folder and one line in registry.py."""
