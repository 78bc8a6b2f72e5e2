"""headrace chats checkpoints, revert, state, pin, pins, summary: a chat's states, pinned messages and summary."""

from __future__ import annotations

import asyncio
import json

import click

from headrace.cli.conversation.input_lines import TextOrInput
from headrace.cli.facade.client import FacadeClient, make_request
from headrace.cli.facade.command import FacadeCommand
from headrace.cli.rpc_commands import add_command, make_flag
from headrace.cli.run_view.answers import Show, json_option, show_answer, show_request
from headrace.cli.run_view.lists import CHECKPOINTS, PINS, revert_chat
from headrace.cli.run_view.printing import print_text
from headrace.v1 import memory_pb2


@click.command(cls=FacadeCommand)
@json_option
@click.option(
    "--count",
    default=50,
    show_default=True,
    type=click.IntRange(1, 200),
    help="Number of checkpoints, counted from the latest.",
)
@click.option("--steps", is_flag=True, help="Include the checkpoints before each step, not only before each question.")
@click.argument("chat_id")
def checkpoints(count: int, steps: bool, chat_id: str) -> None:
    """List the checkpoints of a chat, oldest first."""
    kind = "" if steps else "query"
    show_request(memory_pb2.ListCheckpointsRequest(chat_id=chat_id, page_size=count, kind=kind), CHECKPOINTS)


@click.command(cls=FacadeCommand)
@click.argument("chat_id")
@click.argument("checkpoint_id", type=click.IntRange(0))
def revert(chat_id: str, checkpoint_id: int) -> None:
    """Revert a chat to a checkpoint.

    Nothing is deleted, and files are not reverted.
    """
    asyncio.run(revert_chat(chat_id, checkpoint_id))


@click.command(cls=FacadeCommand)
@click.option(
    "--context", "context_id", default="", help="Id of the context of a sub-agent or task. Default: the chat's own."
)
@click.option("--set", "value", metavar="JSON", help="JSON object that replaces the state.")
@click.argument("chat_id")
def state(context_id: str, value: str | None, chat_id: str) -> None:
    """Show the session state of a chat as JSON, or replace it."""
    try:
        wanted = None if value is None else json.loads(value)
    except ValueError as error:
        raise click.BadParameter(f"is no JSON: {error}", param_hint="--set") from None

    async def answer(facade: FacadeClient) -> str:
        before = await facade.send(memory_pb2.GetStateRequest(chat_id=chat_id, context_id=context_id))
        if wanted is None:
            return before.state
        # Refused where somebody else has changed it meanwhile.
        after = json.dumps(wanted, ensure_ascii=False)
        request = memory_pb2.UpdateStateRequest(
            chat_id=chat_id, context_id=context_id, expected_version=before.version, state=after
        )
        await facade.send(request)
        return after

    click.echo(make_request(answer))


pin = add_command(
    None,
    "pin",
    "MemoryService/PinMessage",
    None,
    make_flag("--remove", "remove", True, "Unpin the message."),
    about="""Pin the message of line N of a chat.

    Every summary that replaces the message then includes it word for word. `headrace chats checkpoints --steps` lists
    the lines.""",
    arguments="chat_id n",
)


pins = add_command(None, "pins", "MemoryService/ListPins", PINS)


@click.command(cls=FacadeCommand)
@json_option
@click.option("--set", "text", type=TextOrInput(), help="New text; - reads it from standard input.")
@click.argument("chat_id")
def summary(text: str | None, chat_id: str) -> None:
    """Show the summary of a chat, or replace its text.

    The previous text stays in the log.
    """

    async def answer(facade: FacadeClient) -> None:
        request = memory_pb2.GetSummaryRequest(chat_id=chat_id)
        if text is None or not (before := await facade.send(request)).n:
            await show_answer(facade, request, _SUMMARY)
        else:
            await facade.send(memory_pb2.EditSummaryRequest(chat_id=chat_id, n=before.n, text=text))
            print_text(text)

    make_request(answer)


_SUMMARY = Show(lambda summary: print_text(summary.text or "nothing was compacted in this chat"))
