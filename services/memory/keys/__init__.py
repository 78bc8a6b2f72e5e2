"""API keys that are created, limited and revoked by RPC."""
