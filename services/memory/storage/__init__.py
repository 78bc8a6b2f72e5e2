"""Stores of chats: `engine` is their interface; `files` and `postgres` implement it."""
