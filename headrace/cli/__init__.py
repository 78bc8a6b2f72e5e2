"""The command line. It works over HTTP against a facade; `up` starts the services as processes of their own."""

from __future__ import annotations

import click

from headrace.cli.agents import agents
from headrace.cli.ask import ask
from headrace.cli.bench import bench
from headrace.cli.chat import chat
from headrace.cli.chats import chats
from headrace.cli.health import health
from headrace.cli.simulate import simulate
from headrace.cli.up import up


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="headrace")
def main() -> None:
    """Headrace runs LLM agents and streams what they do."""


for command in (up, ask, chat, chats, agents, simulate, health, bench):
    main.add_command(command)
