"""The command line, which talks HTTP to a facade; `up` starts the services as processes."""

from __future__ import annotations

from importlib import import_module

import click

NAMES = (
    "up",
    "ask",
    "chat",
    "chats",
    "gates",
    "context",
    "facts",
    "schedules",
    "webhooks",
    "simulate",
    "record",
    "replay",
    "health",
    "bench",
)
"""The commands, each of the module of that name."""

OPERATING = ("agents", "check", "providers", "replicas", "runs", "spend")
"""Commands of those who operate, in a folder of their own."""


class _Commands(click.Group):
    """Imports a command when it is asked for: `up` stays small and starts its services at once."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted((*NAMES, *OPERATING))

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in (*NAMES, *OPERATING):
            return None
        folder = "operating" if cmd_name in OPERATING else "commands"
        return getattr(import_module(f"headrace.cli.{folder}.{cmd_name}"), cmd_name)


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="headrace")
def main() -> None:
    """Headrace runs LLM agents and streams what they do."""
