"""Code shared by the protocol adapters (OpenAI, A2A, AG-UI, MCP)."""
