"""Commands on stored chats."""
