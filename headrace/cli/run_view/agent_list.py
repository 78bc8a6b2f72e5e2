"""The list of agents, for `headrace agents` and `/agents`."""

from __future__ import annotations

import click
import msgspec

from headrace.cli.facade.client import FacadeClient


class Agent(msgspec.Struct, frozen=True):
    """An agent as GET /api/agents has it."""

    key: str
    mode: str
    description: str = ""
    tools: tuple[str, ...] = ()


async def print_agents(url: str, tag: str | None) -> None:
    async with FacadeClient(url) as facade:
        data = await facade.get("/api/agents", **({"tag": tag} if tag else {}))
    agents = msgspec.json.decode(data, type=list[Agent])
    width = max((len(agent.key) for agent in agents), default=0)
    for agent in agents:
        tools = f"  [{', '.join(agent.tools)}]" if agent.tools else ""
        click.echo(f"{agent.key:{width}}  {agent.mode:12}  {agent.description}{tools}")
