"""Chats in a folder owned by one process: a log file for each chat, and an index in SQLite."""
