"""MCP: serves published agents as tools."""
