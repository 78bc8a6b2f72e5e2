"""The handlers of the contract's routes: each turns an HTTP request into an RPC."""
