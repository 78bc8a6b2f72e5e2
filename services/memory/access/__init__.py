"""Access of users to their own chats, and how long chats are kept."""
