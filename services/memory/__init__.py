"""The memory service: one append-only log for each chat, and the views of it."""
