"""Whose chats a caller may use, and how long chats are kept."""
