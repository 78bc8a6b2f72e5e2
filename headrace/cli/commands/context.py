"""headrace context: what fills a window."""

from __future__ import annotations

import asyncio

import click

from headrace.cli.facade.command import FacadeCommand
from headrace.cli.run_view.context_view import print_context


@click.command(cls=FacadeCommand)
@click.option("--agent", help="Key of the agent that the next question goes to; without it the chat's last one.")
@click.option("--run", "run_id", help="Id of a run, to see its window; without it that of the next question.")
@click.argument("chat_id")
def context(agent: str | None, run_id: str | None, chat_id: str) -> None:
    """Show what fills the window of the chat CHAT_ID's next request, what has left it, and why."""
    asyncio.run(print_context(chat_id, agent, run_id))
