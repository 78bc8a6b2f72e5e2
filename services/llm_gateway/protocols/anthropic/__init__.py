"""Protocol `anthropic`: the Messages API."""
