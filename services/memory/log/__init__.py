"""The chat log: its lines, and the chat that they make."""
