"""The client's end: channels, their connections, and calls."""
