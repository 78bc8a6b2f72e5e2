"""The part of a context that a request shows: counted, shortened, fitted to the model's window."""
