"""The client for programs without an event loop; `make sync-client` writes it from the asynchronous one."""
