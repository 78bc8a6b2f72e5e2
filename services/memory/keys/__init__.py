"""API keys that are made, limited and revoked by RPC."""
