"""The server's end: listeners, connections, and calls for handlers."""
