"""`headrace chats export|import|prune|reindex`, over a folder that no service owns, or over the database."""
