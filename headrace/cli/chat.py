"""headrace chat: question after question in one chat."""

from __future__ import annotations

import asyncio

import click

from headrace.cli.agents import show_agents
from headrace.cli.exits import Refused, Unreachable
from headrace.cli.following import follow
from headrace.cli.options import url_option
from headrace.cli.views import view

HELP = "/agents lists the agents, /exit or Ctrl-D leaves; Ctrl-C cancels a run. Anything else is asked."


@click.command()
@url_option
@click.option("--agent", help="Key of the agent.")
@click.option("--chat", "chat_id", help="Id of the chat to go on with; without it a new one.")
def chat(url: str, agent: str | None, chat_id: str | None) -> None:
    """Talk with an agent, question after question."""
    click.echo(HELP)
    while True:
        try:
            line = input("> ").strip()
        except EOFError:
            break
        except KeyboardInterrupt:
            click.echo()
            continue
        if line == "/exit":
            break
        try:
            chat_id = _take(url, line, agent, chat_id)
        except (Refused, Unreachable) as error:
            # One question that fails does not end the conversation.
            error.show()
    if chat_id:
        click.echo(f"chat {chat_id}")


def _take(url: str, line: str, agent: str | None, chat_id: str | None) -> str | None:
    """Do what `line` says and return the chat to go on with."""
    if line == "/agents":
        asyncio.run(show_agents(url, None))
    elif line.startswith("/") and " " not in line:
        click.echo(HELP)
    elif line:
        _, chat_id = asyncio.run(follow(url, view(), line, agent, chat_id))
    return chat_id
