"""The protocols that the simulator speaks; a new one is a folder here and one entry of registry.py."""
