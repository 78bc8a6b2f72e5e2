"""Users' access to their own chats, and retention."""
