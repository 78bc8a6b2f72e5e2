"""headrace chats pin|pins|summary: what stays in a model's window whatever is compacted."""

from __future__ import annotations

import asyncio
import sys

import click
import msgspec

from headrace.cli.facade.client import FacadeClient, make_request
from headrace.cli.facade.options import url_option
from headrace.cli.run_view.lists.pin_list import print_pins
from headrace.cli.run_view.printing import print_text


class Summary(msgspec.Struct, frozen=True):
    """A summary as GET /api/chat/summary has it."""

    n: int = 0
    text: str = ""


@click.command()
@url_option
@click.option("--remove", is_flag=True, help="Take its pin back.")
@click.argument("chat_id")
@click.argument("line", type=click.IntRange(1))
def pin(url: str, remove: bool, chat_id: str, line: int) -> None:
    """Pin the message of a LINE of the chat CHAT_ID; `chats checkpoints --steps` says the numbers.

    It stands word for word beside every summary that stands for it.
    """
    body = {"chatId": chat_id, "n": line, "remove": remove}
    make_request(url, lambda facade: facade.post("/api/chat/pin", body))


@click.command()
@url_option
@click.argument("chat_id")
def pins(url: str, chat_id: str) -> None:
    """List the pinned messages of the chat CHAT_ID: line, who said it, text."""
    asyncio.run(print_pins(url, chat_id))


@click.command()
@url_option
@click.option("--set", "text", help="Another text for it; - reads it from standard input.")
@click.argument("chat_id")
def summary(url: str, text: str | None, chat_id: str) -> None:
    """Show the summary of the chat CHAT_ID, or give it another text; the old one stays in the log."""
    wanted = sys.stdin.read() if text == "-" else text

    async def answer(facade: FacadeClient) -> str:
        before = msgspec.json.decode(await facade.get("/api/chat/summary", chatId=chat_id), type=Summary)
        if wanted is None or not before.n:
            return before.text or "nothing was compacted in this chat"
        await facade.post("/api/chat/summary", {"chatId": chat_id, "n": before.n, "text": wanted})
        return wanted

    print_text(make_request(url, answer))
