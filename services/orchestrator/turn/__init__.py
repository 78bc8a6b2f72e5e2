"""One turn of a scope: its context, the request to the model, the streamed answer."""
