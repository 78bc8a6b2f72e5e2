"""headrace chats: list, search, show, rename and share chats."""

from __future__ import annotations

from typing import Any

import click

from headrace.chat_pages import read_chat
from headrace.cli.commands.chats.checkpoints import checkpoints, pin, pins, revert, state, summary
from headrace.cli.commands.chats.folder import FOLDER_COMMANDS
from headrace.cli.facade.client import FacadeClient, make_request
from headrace.cli.facade.command import CommandGroup
from headrace.cli.rpc_commands import add_command, make_flag
from headrace.cli.run_view.answers import (
    Show,
    is_json_wanted,
    json_option,
    list_rows,
    print_json,
    show_fields,
    show_request,
)
from headrace.cli.run_view.printing import print_text
from headrace.cli.run_view.run_display import RunDisplay
from headrace.cli.run_view.view import choose_view
from headrace.v1 import memory_pb2


@click.group(cls=CommandGroup)
def chats() -> None:
    """List, show, share, revert and maintain chats."""


for command in (checkpoints, revert, state, pin, pins, summary, *FOLDER_COMMANDS):
    chats.add_command(command)

add_command(
    chats,
    "list",
    "MemoryService/ListChats",
    list_rows("chat_id:id", "updated_at", "first_agent_key:agent", "title", "owner", "access"),
    make_flag("--shared", "scope", "shared", "List the chats that others share with you."),
)


def _show_shared(response: memory_pb2.ShareChatResponse) -> None:
    named = [f"{name} (takes part)" if name in response.participants else name for name in response.shared_with]
    print_text(f"shared with {', '.join(named)}" if named else "private")


add_command(
    chats,
    "share",
    "MemoryService/ShareChat",
    Show(_show_shared),
    about="""Set who may read a chat.

    SHARED_WITH is tenant, user:NAME or role:NAME, and may be repeated; without it the chat is private.""",
    arguments="chat_id [shared_with]",
)
add_command(
    chats,
    "rename",
    "MemoryService/UpdateChat",
    show_fields("title"),
    about="Rename a chat.\n\nAn empty TITLE restores the first words of its first message.",
    arguments="chat_id title",
    hidden="if_untitled",
)


@chats.command()
@json_option
@click.argument("words", nargs=-1, required=True)
def search(words: tuple[str, ...]) -> None:
    """Search the titles and texts of chats, best matches first."""
    request = memory_pb2.SearchRequest(query=" ".join(words), scope="chats")
    show_request(request, list_rows("chat_id:id", "title", "excerpt:text"))


@chats.command()
@json_option
@click.argument("chat_id")
def show(chat_id: str) -> None:
    """Show everything that happened in a chat.

    With --json, prints each event on a line.
    """
    pages: list[Any] = []

    async def read(facade: FacadeClient) -> memory_pb2.GetChatResponse:
        async def get_page(request: memory_pb2.GetChatRequest) -> memory_pb2.GetChatResponse:
            answer = await facade.fetch(request)
            pages.insert(0, answer.data)
            return answer.message

        return await read_chat(get_page, chat_id)

    events = make_request(read).events
    if is_json_wanted():
        print_json(*(event for page in pages for event in page["events"]))
        return
    view = choose_view()
    display = RunDisplay(view)
    is_of_several = len({event.request_query.by for event in events if event.HasField("request_query")}) > 1
    for event in events:
        if event.HasField("request_query"):
            view.show_query(event.request_query.message, event.request_query.by if is_of_several else "")
        display.show_event(event)
