"""The client's end: channels, the connections they pool, and calls."""
