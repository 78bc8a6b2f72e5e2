"""headrace chats: what is there, what it holds, and the folder that holds it."""

from headrace.cli.commands.chats.group import chats

__all__ = ["chats"]
