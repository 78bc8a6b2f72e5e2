"""A run may have a plan, which changes."""
