"""Commands over stored chats."""
