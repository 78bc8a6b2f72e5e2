"""How a server is reached, and what became of each request."""
