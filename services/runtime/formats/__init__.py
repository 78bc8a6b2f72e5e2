"""Data of others: JSON, its schemas, YAML."""
