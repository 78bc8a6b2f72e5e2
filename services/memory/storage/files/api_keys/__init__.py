"""API keys in a folder, and what they use of their limits."""
