"""The records a store keeps in addition to chats."""
