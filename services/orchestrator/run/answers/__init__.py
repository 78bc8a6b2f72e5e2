"""A model's answer may have tool calls in it."""
