"""The server's end: listeners, the connections they accept, and calls as handlers see them."""
