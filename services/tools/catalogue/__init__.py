"""The catalogue of available tools."""
