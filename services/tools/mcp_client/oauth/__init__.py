"""Users authorize Headrace at an MCP server: OAuth 2.1, as the protocol's versions specify it.

A server's 401 leads to an address (authorizer.py), at which the user consents; their browser returns with a code, which
is exchanged for tokens (tokens.py). Those are stored encrypted, for that user and server only (token_store.py).
"""
