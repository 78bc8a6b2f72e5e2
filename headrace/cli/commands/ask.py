"""headrace ask: one question and its run."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any, BinaryIO

import click

from headrace.cli.conversation.conversation import Conversation
from headrace.cli.conversation.input_lines import InputLines, TextOrInput
from headrace.cli.conversation.run_follower import follow_run
from headrace.cli.facade.command import FacadeCommand
from headrace.cli.run_view.view import choose_view


@click.command(cls=FacadeCommand)
@click.option("--agent", help="Key of the agent. Default: the last one of the chat, or the server's default.")
@click.option("--chat", "chat_id", help="Id of the chat to continue. Default: a new chat.")
@click.option("--schema", type=click.File("rb"), help="File with the JSON Schema of the answer; - is standard input.")
@click.option(
    "--file",
    "files",
    type=click.Path(exists=True, dir_okay=False, readable=True, path_type=Path),
    multiple=True,
    help="File that the question is about, such as a picture, a sound or a PDF. Repeatable.",
)
@click.option("--record", is_flag=True, help="Record the run, so that headrace record can write its cassette.")
@click.argument("question", type=TextOrInput())
def ask(
    agent: str | None,
    chat_id: str | None,
    schema: BinaryIO | None,
    files: tuple[Path, ...],
    record: bool,
    question: str,
) -> None:
    """Ask an agent one question and show its work.

    If QUESTION is -, it is read from standard input. At a terminal you answer approvals, forms and questions as in
    headrace chat. Elsewhere the command prints how to answer and exits with 4 once the run waits; the run continues.

    Exit codes: 0 answered, 1 the run failed, 2 wrong usage, 3 no server, 4 the run waits for an answer, 130 cancelled.
    Ctrl-C cancels the run.
    """
    try:
        output_schema = None if schema is None else json.load(schema)
    except ValueError as error:
        raise click.BadParameter(f"is no JSON: {error}", param_hint="--schema") from None
    options = {"output_schema": output_schema, "files": files, "is_recorded": record}
    sys.exit(asyncio.run(_ask(question, agent, chat_id, options)))


async def _ask(message: str, agent: str | None, chat_id: str | None, options: dict[str, Any]) -> int:
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        return (await follow_run(choose_view(), message, agent, chat_id, **options))[0]
    with InputLines() as lines:
        return await Conversation(lines, agent, chat_id, is_terminal=True).ask(message, **options)
