"""Prints lists: agents, checkpoints, pins."""

from __future__ import annotations

import click
import msgspec

from headrace.cli.facade.client import FacadeClient
from headrace.cli.run_view.printing import format_time, print_text


class Agent(msgspec.Struct, frozen=True):
    """An agent, as returned by GET /api/agents."""

    key: str
    mode: str
    description: str = ""
    tools: tuple[str, ...] = ()
    owner: str = "operator"


class AgentProblem(msgspec.Struct, frozen=True, rename="camel"):
    """A refused agent file or an inactive stored agent, as returned by GET /api/agents/problems."""

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


TEXT_CHARS_MAX = 70


class Checkpoint(msgspec.Struct, frozen=True, rename="camel"):
    """A checkpoint, as returned by GET /api/chat/checkpoints."""

    checkpoint_id: int
    n: int
    kind: str
    text: str = ""
    tools: tuple[str, ...] = ()
    created_at: int = 0
    context_id: str = ""

    @property
    def title(self) -> str:
        text = " ".join(self.text.split())[:TEXT_CHARS_MAX]
        return text if self.kind == "query" else f"  {', '.join(self.tools) or text}"


async def print_checkpoints(url: str, chat_id: str, *, count: int = 50, with_steps: bool = False) -> None:
    async with FacadeClient(url) as facade:
        kind = {} if with_steps else {"kind": "query"}
        data = await facade.get("/api/chat/checkpoints", chatId=chat_id, pageSize=str(count), **kind)
    page = msgspec.json.decode(data, type=list[Checkpoint])
    for checkpoint in reversed(page):
        when = format_time(checkpoint.created_at)
        print_text(f"{checkpoint.checkpoint_id:5}  {when}  line {checkpoint.n}, before {checkpoint.title}")


async def revert_chat(url: str, chat_id: str, checkpoint_id: int) -> None:
    async with FacadeClient(url) as facade:
        await facade.post("/api/chat/revert", {"chatId": chat_id, "checkpointId": checkpoint_id})
    click.echo(f"the chat is as it was at checkpoint {checkpoint_id}; its log keeps everything")


KINDS = {"question": "query", "answer": "step"}
"""Kind of checkpoint by the word for the last message of that kind."""


class Pin(msgspec.Struct, frozen=True):
    """A pin, as returned by GET /api/chat/pins."""

    n: int
    text: str
    role: str = ""


async def print_pins(url: str, chat_id: str) -> None:
    async with FacadeClient(url) as facade:
        data = await facade.get("/api/chat/pins", chatId=chat_id)
    for pin in msgspec.json.decode(data, type=list[Pin]):
        print_text(f"{pin.n:5}  {pin.role:9}  {' '.join(pin.text.split())}")


async def pin_message(url: str, chat_id: str, which: str, *, remove: bool = False) -> None:
    """Pin or unpin a message; `which` is its line number or one of KINDS."""
    async with FacadeClient(url) as facade:
        n = int(which) if which.isdecimal() else await _find_last(facade, chat_id, which)
        if n is None:
            click.echo(f"there is no {which} yet")
            return
        await facade.post("/api/chat/pin", {"chatId": chat_id, "n": n, "remove": remove})
    click.echo(f"line {n} is {'not pinned any more' if remove else 'pinned: it stands beside every summary'}")


async def _find_last(facade: FacadeClient, chat_id: str, which: str) -> int | None:
    data = await facade.get("/api/chat/checkpoints", chatId=chat_id, kind=KINDS[which])
    page = msgspec.json.decode(data, type=list[Checkpoint])
    said = (place for place in page if place.text and not place.context_id)
    return next((place.n for place in said if place.text.split(maxsplit=1)[:1] != ["/compact"]), None)
