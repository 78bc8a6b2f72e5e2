"""Chats: access, appends, reads and edits."""
