"""The list of agents, for `headrace agents` and `/agents`."""

from __future__ import annotations

import click
import msgspec

from headrace.cli.facade.client import FacadeClient
from headrace.cli.run_view.printing import print_text


class Agent(msgspec.Struct, frozen=True):
    """An agent as GET /api/agents has it."""

    key: str
    mode: str
    description: str = ""
    tools: tuple[str, ...] = ()
    owner: str = "operator"


class AgentProblem(msgspec.Struct, frozen=True, rename="camel"):
    """A refused file, or a stored agent that is not in force, as GET /api/agents/problems has it."""

    problem: str
    file: str = ""
    agent_key: str = ""


async def print_agent_problems(url: str) -> None:
    async with FacadeClient(url) as facade:
        data = await facade.get("/api/agents/problems")
    problems = msgspec.json.decode(data, type=list[AgentProblem])
    for problem in problems:
        stays = f" (the last good version of {problem.agent_key} stays in force)" if problem.agent_key else ""
        what = (
            f"{problem.file}: {problem.problem}{stays}" if problem.file else f"{problem.agent_key}: {problem.problem}"
        )
        print_text(what)
    if not problems:
        click.echo("every file is in force")


async def print_agents(url: str, tag: str | None) -> None:
    async with FacadeClient(url) as facade:
        data = await facade.get("/api/agents", **({"tag": tag} if tag else {}))
    agents = msgspec.json.decode(data, type=list[Agent])
    width = max((len(agent.key) for agent in agents), default=0)
    for agent in agents:
        tools = f"  [{', '.join(agent.tools)}]" if agent.tools else ""
        own = "  (the tenant's own)" if agent.owner == "tenant" else ""
        print_text(f"{agent.key:{width}}  {agent.mode:12}  {agent.description}{tools}{own}")
