"""headrace chats: list, show and change chats, and maintain the stored ones."""

from headrace.cli.commands.chats.group import chats

__all__ = ["chats"]
