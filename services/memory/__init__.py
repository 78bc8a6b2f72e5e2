"""The memory service: one append-only log per chat, and views of it."""
