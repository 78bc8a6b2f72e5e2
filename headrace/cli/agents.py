"""headrace agents: who can be asked."""

from __future__ import annotations

import asyncio

import click
import msgspec

from headrace.cli.options import url_option
from headrace.cli.server import Server


class Agent(msgspec.Struct, frozen=True):
    """An agent as the list shows it."""

    key: str
    mode: str
    description: str = ""
    tools: tuple[str, ...] = ()


@click.command()
@url_option
@click.option("--tag", help="Only agents with this text in key, description, tools or skills.")
def agents(url: str, tag: str | None) -> None:
    """List the agents: key, mode, description, tools."""
    asyncio.run(show_agents(url, tag))


async def show_agents(url: str, tag: str | None) -> None:
    """Print one line for each agent."""
    async with Server(url) as server:
        data = await server.get("/api/agents", **({"tag": tag} if tag else {}))
    found = msgspec.json.decode(data, type=list[Agent])
    width = max((len(agent.key) for agent in found), default=0)
    for agent in found:
        tools = f"  [{', '.join(agent.tools)}]" if agent.tools else ""
        click.echo(f"{agent.key:{width}}  {agent.mode:12}  {agent.description}{tools}")
