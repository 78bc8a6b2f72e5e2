"""One turn of a scope, from its context to the streamed answer."""
