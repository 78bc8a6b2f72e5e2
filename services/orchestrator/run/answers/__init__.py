"""A model's answer and its tool calls."""
