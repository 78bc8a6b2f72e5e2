"""headrace webhooks: events posted to other systems."""

from headrace.cli.commands.webhooks.group import webhooks

__all__ = ["webhooks"]
