"""Users authorize Headrace at an MCP server: OAuth 2.1, as the protocol's versions have it.

A server's 401 leads to an address (authorizer.py), at which the user agrees; their browser comes back with a code,
which becomes tokens (tokens.py). Those are kept encrypted, for that user and server alone (token_store.py).
"""
