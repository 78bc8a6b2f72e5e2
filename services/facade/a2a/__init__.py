"""A2A 1.0: serves published agents to other agents over JSON-RPC, HTTP+JSON and gRPC."""
