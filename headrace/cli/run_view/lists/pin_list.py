"""Pinned messages of a chat, for `headrace chats` and the conversation: their list, and pinning one."""

from __future__ import annotations

import click
import msgspec

from headrace.cli.facade.client import FacadeClient
from headrace.cli.run_view.lists.checkpoint_list import Checkpoint
from headrace.cli.run_view.printing import print_text

KINDS = {"question": "query", "answer": "step"}
"""Kinds of checkpoints by the words for the last message of each."""


class Pin(msgspec.Struct, frozen=True):
    """A pin as GET /api/chat/pins has it."""

    n: int
    text: str
    role: str = ""


async def print_pins(url: str, chat_id: str) -> None:
    async with FacadeClient(url) as facade:
        data = await facade.get("/api/chat/pins", chatId=chat_id)
    for pin in msgspec.json.decode(data, type=list[Pin]):
        print_text(f"{pin.n:5}  {pin.role:9}  {' '.join(pin.text.split())}")


async def pin_message(url: str, chat_id: str, which: str, *, remove: bool = False) -> None:
    """Pin a message or take its pin back; `which` is the number of its line, or one of KINDS."""
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
