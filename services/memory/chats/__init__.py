"""Chats: who may use them, what is appended to them, read from them and changed in them."""
