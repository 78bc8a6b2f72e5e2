"""The command line: an HTTP client of the facade; `up` starts the services as processes."""

from __future__ import annotations

from importlib import import_module

import click

NAMES = (
    "init",
    "up",
    "ask",
    "chat",
    "chats",
    "gates",
    "authorizations",
    "context",
    "facts",
    "follow",
    "schedules",
    "webhooks",
    "simulate",
    "health",
    "bench",
)
"""Commands; each is in the module of the same name."""

OPERATING = (
    *(
        "agents",
        "audit",
        "backups",
        "check",
        "data",
        "doctor",
        "keys",
        "limits",
        "providers",
        "replicas",
        "runs",
        "spend",
    ),
    "tools",
)
"""Commands for operators, in their own folder."""

TESTING = ("eval", "fork", "record", "replay")
"""Commands for recorded runs and evaluations, in their own folder."""

FOLDERS = {"commands": NAMES, "operating": OPERATING, "testing": TESTING}


class _Commands(click.Group):
    """Imports a command only when it is used, so that `up` stays small and starts its services at once."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(name for names in FOLDERS.values() for name in names)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        folder = next((folder for folder, names in FOLDERS.items() if cmd_name in names), None)
        return None if folder is None else getattr(import_module(f"headrace.cli.{folder}.{cmd_name}"), cmd_name)


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="headrace")
def main() -> None:
    """Headrace runs LLM agents and streams what they do."""
