"""Middleware around the handler of every HTTP request: ids, log line, errors, origins, credentials."""
