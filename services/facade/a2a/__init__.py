"""A2A 1.0: published agents for other agents, as JSON-RPC and HTTP+JSON."""
