"""The command line, which talks HTTP to a facade; `up` starts the services as processes."""

from __future__ import annotations

from importlib import import_module

import click

<<<<<<< HEAD
NAMES = ("up", "ask", "chat", "chats", "context", "facts", "agents", "simulate", "health", "bench")
"""The commands, each of the module of that name."""
=======
from headrace.cli.commands.agents import agents
from headrace.cli.commands.ask import ask
from headrace.cli.commands.bench import bench
from headrace.cli.commands.chat import chat
from headrace.cli.commands.chats import chats
from headrace.cli.commands.context import context
from headrace.cli.commands.facts import facts
from headrace.cli.commands.health import health
from headrace.cli.commands.schedules import schedules
from headrace.cli.commands.simulate import simulate
from headrace.cli.commands.up import up
>>>>>>> b3edf89 (Ask agents at set times: schedules with time zones, on both engines)


class _Commands(click.Group):
    """Imports a command when it is asked for: `up` stays small and starts its services at once."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(NAMES)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in NAMES:
            return None
        return getattr(import_module(f"headrace.cli.commands.{cmd_name}"), cmd_name)


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="headrace")
def main() -> None:
    """Headrace runs LLM agents and streams what they do."""
<<<<<<< HEAD
=======


for command in (up, ask, chat, chats, context, facts, schedules, agents, simulate, health, bench):
    main.add_command(command)
>>>>>>> b3edf89 (Ask agents at set times: schedules with time zones, on both engines)
