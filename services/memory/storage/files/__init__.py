"""Chats in a folder that one process owns: a log file for each chat, and an index in SQLite."""
