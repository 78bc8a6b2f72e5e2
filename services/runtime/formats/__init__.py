"""Formats of external data: JSON, its schemas, YAML."""
