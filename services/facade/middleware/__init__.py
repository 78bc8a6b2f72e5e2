"""Middleware around every handler: ids, log line, errors, origins, credentials."""
