"""The chat log: its lines, and the chat built from them."""
