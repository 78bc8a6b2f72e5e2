"""The client for programs without an event loop; `make gen` writes it from the asynchronous one."""
