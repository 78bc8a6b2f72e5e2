"""Holds chats' workspaces, folders that tools share and that no path leads out of."""
