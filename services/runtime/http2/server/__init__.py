"""The server's end: listeners, connections, and calls as handlers see them."""
