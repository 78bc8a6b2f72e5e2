"""A model's answer and the tool calls in it."""
