"""Access to the facade: options, requests, errors with exit codes."""
