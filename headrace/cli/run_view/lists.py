"""Prints lists: agents, checkpoints, pins."""

from __future__ import annotations

import click

from headrace.cli.facade.client import FacadeClient
from headrace.cli.run_view.printing import format_time, print_text
from headrace.cli.run_view.tables import print_rows
from headrace.v1 import agent_pb2, memory_pb2


async def print_agents(url: str, tag: str | None) -> None:
    async with FacadeClient(url) as facade:
        response: agent_pb2.ListAgentsResponse = await facade.send(agent_pb2.ListAgentsRequest(tag=tag))
    print_rows(response.agents, ("key", "mode", "description", "tools", "owner"))


TEXT_CHARS_MAX = 70


async def print_checkpoints(url: str, chat_id: str, *, count: int = 50, with_steps: bool = False) -> None:
    request = memory_pb2.ListCheckpointsRequest(chat_id=chat_id, page_size=count, kind="" if with_steps else "query")
    async with FacadeClient(url) as facade:
        response: memory_pb2.ListCheckpointsResponse = await facade.send(request)
    for checkpoint in reversed(response.checkpoints):
        when, text = format_time(checkpoint.created_at), " ".join(checkpoint.text.split())[:TEXT_CHARS_MAX]
        title = text if checkpoint.kind == "query" else f"  {', '.join(checkpoint.tools) or text}"
        print_text(f"{checkpoint.checkpoint_id:5}  {when}  line {checkpoint.n}, before {title}")


async def revert_chat(url: str, chat_id: str, checkpoint_id: int) -> None:
    async with FacadeClient(url) as facade:
        await facade.send(memory_pb2.RevertRequest(chat_id=chat_id, checkpoint_id=checkpoint_id))
    click.echo(f"the chat is as it was at checkpoint {checkpoint_id}; its log keeps everything")


KINDS = {"question": "query", "answer": "step"}
"""Kind of checkpoint by the word for the last message of that kind."""


async def print_pins(url: str, chat_id: str) -> None:
    async with FacadeClient(url) as facade:
        response: memory_pb2.ListPinsResponse = await facade.send(memory_pb2.ListPinsRequest(chat_id=chat_id))
    for pin in response.pins:
        print_text(f"{pin.n:5}  {pin.role:9}  {' '.join(pin.text.split())}")


async def pin_message(url: str, chat_id: str, which: str, *, remove: bool = False) -> None:
    """Pin or unpin a message; `which` is its line number or one of KINDS."""
    async with FacadeClient(url) as facade:
        n = int(which) if which.isdecimal() else await _find_last(facade, chat_id, which)
        if n is None:
            click.echo(f"there is no {which} yet")
            return
        await facade.send(memory_pb2.PinMessageRequest(chat_id=chat_id, n=n, remove=remove))
    click.echo(f"line {n} is {'not pinned any more' if remove else 'pinned: it stands beside every summary'}")


async def _find_last(facade: FacadeClient, chat_id: str, which: str) -> int | None:
    request = memory_pb2.ListCheckpointsRequest(chat_id=chat_id, kind=KINDS[which])
    response: memory_pb2.ListCheckpointsResponse = await facade.send(request)
    said = (place for place in response.checkpoints if place.text and not place.context_id)
    return next((place.n for place in said if place.text.split(maxsplit=1)[:1] != ["/compact"]), None)
