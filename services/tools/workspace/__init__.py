"""The workspaces of chats: folders that tools share and that no path leads out of."""
