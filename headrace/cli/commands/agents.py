"""headrace agents: the agents of a server."""

from __future__ import annotations

import asyncio

import click

from headrace.cli.facade.options import url_option
from headrace.cli.run_view.agent_list import print_agent_problems, print_agents


@click.command()
@url_option
@click.option("--tag", help="Only agents with this text in key, description, tools or skills.")
@click.option("--problems", is_flag=True, help="List the refused agent files instead; needs the scope operate.")
def agents(url: str, tag: str | None, problems: bool) -> None:
    """List the agents: key, mode, description, tools."""
    asyncio.run(print_agent_problems(url) if problems else print_agents(url, tag))
