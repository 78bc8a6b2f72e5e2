"""The client for programs without an event loop: the asynchronous client over blocking channels."""
