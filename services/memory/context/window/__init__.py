"""What of a context a request shows: counted, shortened, fitted to the model's window."""
