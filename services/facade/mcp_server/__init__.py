"""MCP: published agents as tools, for the programs that have models call tools."""
