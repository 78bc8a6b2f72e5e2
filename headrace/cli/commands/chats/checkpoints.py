"""headrace chats checkpoints|revert|state: where a chat can go back to, and what its runs keep."""

from __future__ import annotations

import asyncio
import json

import click
import msgspec

from headrace.cli.facade.client import FacadeClient, make_request
from headrace.cli.facade.options import url_option
from headrace.cli.run_view.lists.checkpoint_list import print_checkpoints, revert_chat


class SessionState(msgspec.Struct, frozen=True):
    """A state as GET /api/chat/state has it."""

    version: int
    state: msgspec.Raw


@click.command()
@url_option
@click.option("--count", default=50, show_default=True, type=click.IntRange(1, 200), help="How many, the latest.")
@click.option("--steps", is_flag=True, help="Those before each step too, not only before each question.")
@click.argument("chat_id")
def checkpoints(url: str, count: int, steps: bool, chat_id: str) -> None:
    """List the checkpoints of the chat CHAT_ID, the latest last: id, time, line, what they are before."""
    asyncio.run(print_checkpoints(url, chat_id, count=count, with_steps=steps))


@click.command()
@url_option
@click.argument("chat_id")
@click.argument("checkpoint_id", type=click.IntRange(0))
def revert(url: str, chat_id: str, checkpoint_id: int) -> None:
    """Make the chat CHAT_ID as it was at a checkpoint; nothing is deleted, and files stay as they are."""
    asyncio.run(revert_chat(url, chat_id, checkpoint_id))


@click.command()
@url_option
@click.option(
    "--context", "context_id", default="", help="Id of a sub-agent's or task's context; without it the chat's."
)
@click.option("--set", "value", metavar="JSON", help="An object to put in the place of the state.")
@click.argument("chat_id")
def state(url: str, context_id: str, value: str | None, chat_id: str) -> None:
    """Show the session state of the chat CHAT_ID as JSON, or replace it."""
    try:
        wanted = None if value is None else json.loads(value)
    except ValueError as error:
        raise click.BadParameter(f"is no JSON: {error}", param_hint="--set") from None
    where = {"chatId": chat_id} | ({"contextId": context_id} if context_id else {})

    async def answer(facade: FacadeClient) -> msgspec.Raw:
        before = msgspec.json.decode(await facade.get("/api/chat/state", **where), type=SessionState)
        if wanted is None:
            return before.state
        # Refused where somebody else has changed it meanwhile.
        await facade.post("/api/chat/state", where | {"expectedVersion": before.version, "state": wanted})
        return msgspec.Raw(msgspec.json.encode(wanted))

    click.echo(bytes(make_request(url, answer)).decode())
