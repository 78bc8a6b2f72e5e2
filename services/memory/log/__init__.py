"""The chat log: the form of its lines, and a chat as its lines make it."""
