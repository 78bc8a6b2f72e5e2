"""The command line, which talks HTTP to a facade; `up` starts the services as processes."""

from __future__ import annotations

import click

from headrace.cli.commands.agents import agents
from headrace.cli.commands.ask import ask
from headrace.cli.commands.bench import bench
from headrace.cli.commands.chat import chat
from headrace.cli.commands.chats import chats
from headrace.cli.commands.context import context
from headrace.cli.commands.facts import facts
from headrace.cli.commands.health import health
from headrace.cli.commands.simulate import simulate
from headrace.cli.commands.up import up


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="headrace")
def main() -> None:
    """Headrace runs LLM agents and streams what they do."""


for command in (up, ask, chat, chats, context, facts, agents, simulate, health, bench):
    main.add_command(command)
