"""The handlers of the contract's routes; each translates an HTTP request into an RPC."""
