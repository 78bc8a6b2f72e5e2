"""The HTTP facade as commands see it: options, requests, errors with exit codes."""
