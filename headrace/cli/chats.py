"""headrace chats: what was said before."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime

import click
import msgspec

from headrace.cli.blocks import Blocks
from headrace.cli.chats_folder import export_chats, import_chats, prune_chats, reindex_chats
from headrace.cli.events import Event
from headrace.cli.options import url_option
from headrace.cli.server import Server
from headrace.cli.views import view


class Chat(msgspec.Struct, frozen=True, rename="camel"):
    """A chat as the list shows it."""

    chat_id: str
    chat_name: str
    first_agent_key: str
    updated_at: int


class History(msgspec.Struct, frozen=True):
    """A chat's events."""

    events: tuple[Event, ...]


@click.group()
def chats() -> None:
    """List chats, show one; move and clear them."""


for command in (export_chats, import_chats, prune_chats, reindex_chats):
    chats.add_command(command)


@chats.command("list")
@url_option
@click.option("--count", default=50, show_default=True, type=click.IntRange(1, 200), help="How many, newest first.")
def list_chats(url: str, count: int) -> None:
    """List chats, the last changed first: id, time, agent, name."""
    found = msgspec.json.decode(asyncio.run(_get(url, "/api/chats", pageSize=str(count))), type=list[Chat])
    for chat in found:
        when = datetime.fromtimestamp(chat.updated_at / 1000, UTC).astimezone()
        click.echo(f"{chat.chat_id}  {when:%Y-%m-%d %H:%M}  {chat.first_agent_key}  {chat.chat_name}")


@chats.command()
@url_option
@click.argument("chat_id")
def show(url: str, chat_id: str) -> None:
    """Show everything that happened in the chat CHAT_ID."""
    history = msgspec.json.decode(asyncio.run(_get(url, "/api/chat", chatId=chat_id)), type=History)
    shown = view()
    blocks = Blocks(shown)
    for event in history.events:
        if event.type == "request.query":
            shown.query(event.message)
        blocks.show(event)


async def _get(url: str, path: str, **parameters: str) -> msgspec.Raw:
    async with Server(url) as server:
        return await server.get(path, **parameters)
