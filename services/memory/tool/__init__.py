"""`headrace chats export|import|prune|reindex`, over the folder itself."""
