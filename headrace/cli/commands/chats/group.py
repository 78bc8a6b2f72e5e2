"""headrace chats: list chats, and show one."""

from __future__ import annotations

import click

from headrace.chat_pages import read_chat
from headrace.cli.answers import Show, json_option, list_rows, show_fields, show_request
from headrace.cli.commands.chats.checkpoints import checkpoints, pin, pins, revert, state, summary
from headrace.cli.commands.chats.folder import (
    export_chats,
    import_chats,
    list_data_keys,
    move_blobs,
    prune_chats,
    reencrypt_chats,
    reindex_chats,
    rotate_data_keys,
    verify_chats,
)
from headrace.cli.facade.client import make_request
from headrace.cli.facade.command import CommandGroup
from headrace.cli.rpc_commands import add_command, make_flag
from headrace.cli.run_view.printing import print_text
from headrace.cli.run_view.run_display import RunDisplay
from headrace.cli.run_view.view import choose_view
from headrace.v1 import memory_pb2


@click.group(cls=CommandGroup)
def chats() -> None:
    """List chats, show one, take one back; move and clear them."""


for command in (checkpoints, revert, state, pin, pins, summary):
    chats.add_command(command)
for command in (export_chats, import_chats, move_blobs, prune_chats, reindex_chats, verify_chats):
    chats.add_command(command)
for command in (list_data_keys, rotate_data_keys, reencrypt_chats):
    chats.add_command(command)


add_command(
    chats,
    "list",
    "MemoryService/ListChats",
    list_rows("chat_id:id", "updated_at", "first_agent_key:agent", "title", "owner", "access"),
    make_flag("--shared", "scope", "shared", "Those of others, with their owners and what you may do."),
)


def _show_shared(response: memory_pb2.ShareChatResponse) -> None:
    named = [f"{name} (takes part)" if name in response.participants else name for name in response.shared_with]
    print_text(f"shared with {', '.join(named)}" if named else "private")


add_command(
    chats,
    "share",
    "MemoryService/ShareChat",
    Show(_show_shared),
    about="Let SHARED_WITH read the chat CHAT_ID, and nobody else: tenant, user:NAME, role:NAME; without one it is "
    "private.",
    arguments="chat_id [shared_with]",
)
add_command(
    chats,
    "rename",
    "MemoryService/UpdateChat",
    show_fields("title"),
    about="Give the chat CHAT_ID another TITLE; with an empty one, the first words of its first message again.",
    arguments="chat_id title",
    hidden="if_untitled",
)


@chats.command()
@json_option
@click.argument("words", nargs=-1, required=True)
def search(words: tuple[str, ...]) -> None:
    """Search titles and texts of chats for WORDS, the best places first: id, title, text."""
    request = memory_pb2.SearchRequest(query=" ".join(words), scope="chats")
    show_request(request, list_rows("chat_id:id", "title", "excerpt:text"))


@chats.command()
@click.argument("chat_id")
def show(chat_id: str) -> None:
    """Show everything that happened in the chat CHAT_ID."""
    view = choose_view()
    display = RunDisplay(view)
    events = make_request(lambda facade: read_chat(facade.send, chat_id)).events
    is_of_several = len({event.request_query.by for event in events if event.HasField("request_query")}) > 1
    for event in events:
        if event.HasField("request_query"):
            view.show_query(event.request_query.message, event.request_query.by if is_of_several else "")
        display.show_event(event)
