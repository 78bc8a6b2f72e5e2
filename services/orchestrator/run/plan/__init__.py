"""A run's plan, and its changes."""
