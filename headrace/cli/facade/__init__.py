"""The HTTP facade as the commands see it: options that say where it is, requests, errors with exit codes."""
