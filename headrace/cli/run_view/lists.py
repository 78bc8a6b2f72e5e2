"""Prints lists: agents, checkpoints, pins."""

from __future__ import annotations

from collections.abc import Sequence

import click

from headrace.cli.facade.client import FacadeClient
from headrace.cli.run_view.answers import Show, list_rows
from headrace.cli.run_view.tables import print_rows
from headrace.v1 import memory_pb2

AGENTS = list_rows("key", "mode", "description", "tools", "owner")

PINS = list_rows("n:line", "role", "text")

TEXT_CHARS_MAX = 70


def _describe_checkpoint(checkpoint: memory_pb2.Checkpoint) -> str:
    text = " ".join(checkpoint.text.split())[:TEXT_CHARS_MAX]
    return text if checkpoint.kind == "query" else f"step: {', '.join(checkpoint.tools) or text}"


def _print_checkpoints(checkpoints: Sequence[memory_pb2.Checkpoint]) -> None:
    columns = ("checkpoint_id:id", "created_at", "n:line", ("before", _describe_checkpoint))
    print_rows([*reversed(checkpoints)], columns)


CHECKPOINTS = Show(_print_checkpoints, is_list=True)


async def revert_chat(chat_id: str, checkpoint_id: int) -> None:
    async with FacadeClient() as facade:
        await facade.send(memory_pb2.RevertRequest(chat_id=chat_id, checkpoint_id=checkpoint_id))
    click.echo(f"the chat is as it was at checkpoint {checkpoint_id}; its log keeps everything")


KINDS = {"question": "query", "answer": "step"}
"""Kind of checkpoint by the word for the last message of that kind."""


async def pin_message(chat_id: str, which: str, *, remove: bool = False) -> None:
    """Pin or unpin a message; `which` is its line number or one of KINDS."""
    async with FacadeClient() as facade:
        n = int(which) if which.isdecimal() else await _find_last(facade, chat_id, which)
        if n is None:
            click.echo(f"there is no {which} yet")
            return
        await facade.send(memory_pb2.PinMessageRequest(chat_id=chat_id, n=n, remove=remove))
    click.echo(f"line {n} is {'not pinned any more' if remove else 'pinned: every summary includes it word for word'}")


async def _find_last(facade: FacadeClient, chat_id: str, which: str) -> int | None:
    request = memory_pb2.ListCheckpointsRequest(chat_id=chat_id, kind=KINDS[which])
    response: memory_pb2.ListCheckpointsResponse = await facade.send(request)
    places = (place for place in response.checkpoints if place.text and not place.context_id)
    return next((place.n for place in places if place.text.split(maxsplit=1)[:1] != ["/compact"]), None)
