"""headrace chat: question after question in one chat."""

from __future__ import annotations

import asyncio
import sys

import click

from headrace.cli.lines import Lines
from headrace.cli.options import url_option
from headrace.cli.talking import Talk


@click.command()
@url_option
@click.option("--agent", help="Key of the agent; `auto` has one picked for each question.")
@click.option("--chat", "chat_id", help="Id of the chat to go on with; without it a new one.")
def chat(url: str, agent: str | None, chat_id: str | None) -> None:
    """Talk with an agent, question after question.

    Approvals, forms and questions of the agent are answered here, too; /help lists what else can be typed.
    """
    if chat_id := asyncio.run(_talk(url, agent, chat_id)):
        click.echo(f"chat {chat_id}")


async def _talk(url: str, agent: str | None, chat_id: str | None) -> str | None:
    """Talk to the end of the input; the chat."""
    with Lines() as lines:
        talk = Talk(url, lines, agent, chat_id, is_terminal=sys.stdin.isatty())
        await talk.to_the_end()
    return talk.chat_id
