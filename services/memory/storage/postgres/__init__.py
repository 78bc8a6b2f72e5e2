"""Chats in PostgreSQL, shared by several memory services."""
