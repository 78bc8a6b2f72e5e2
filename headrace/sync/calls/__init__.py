"""The calls of the client, by subject: each makes a request, and returns its answer."""
