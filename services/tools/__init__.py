"""The tools service: tools, the sandbox they run in, and the chats' workspaces."""
