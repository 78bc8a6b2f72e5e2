"""headrace context: show the contents of a chat's context window."""

from __future__ import annotations

import click

from headrace.cli.facade.command import FacadeCommand
from headrace.cli.run_view.answers import json_option, show_request
from headrace.cli.run_view.context_view import CONTEXT
from headrace.v1 import agent_pb2


@click.command(cls=FacadeCommand)
@json_option
@click.option("--agent", help="Key of the agent to ask next. Default: the last one of the chat.")
@click.option("--run", "run_id", help="Show the window of this run instead of the next request's.")
@click.argument("chat_id")
def context(agent: str | None, run_id: str | None, chat_id: str) -> None:
    """Show the context window of a chat's next request.

    Lists its parts, and those that were summarised or left out, with the reason.
    """
    show_request(agent_pb2.GetContextRequest(chat_id=chat_id, agent_key=agent, run_id=run_id), CONTEXT)
