"""headrace agents: the agents of a server."""

from __future__ import annotations

import asyncio

import click

from headrace.cli.facade.options import url_option
from headrace.cli.run_view.agent_list import print_agents


@click.command()
@url_option
@click.option("--tag", help="Only agents with this text in key, description, tools or skills.")
def agents(url: str, tag: str | None) -> None:
    """List the agents: key, mode, description, tools."""
    asyncio.run(print_agents(url, tag))
