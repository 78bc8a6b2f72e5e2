"""headrace chat: question after question in one chat."""

from __future__ import annotations

import asyncio
import sys

import click

from headrace.cli.conversation.conversation import Conversation
from headrace.cli.conversation.input_lines import InputLines
from headrace.cli.facade.command import FacadeCommand


@click.command(cls=FacadeCommand)
@click.option("--agent", help="Key of the agent, or auto: an agent is chosen for each question.")
@click.option("--chat", "chat_id", help="Id of the chat to continue. Default: a new chat.")
def chat(agent: str | None, chat_id: str | None) -> None:
    """Talk with an agent.

    You also answer its approvals, forms and questions here. Type /help for the list of commands.
    """
    if chat_id := asyncio.run(_converse(agent, chat_id)):
        click.echo(f"chat {chat_id}")


async def _converse(agent: str | None, chat_id: str | None) -> str | None:
    """Converse to the end of the input; return the chat's id."""
    with InputLines() as lines:
        conversation = Conversation(lines, agent, chat_id, is_terminal=sys.stdin.isatty())
        await conversation.run_to_end()
    return conversation.chat_id
