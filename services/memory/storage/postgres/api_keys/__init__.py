"""API keys in tables, and what they use of their limits."""
