"""headrace chats: list chats, and show one."""

from __future__ import annotations

import click
import msgspec

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
from headrace.cli.facade.options import url_option
from headrace.cli.run_view.printing import format_time, print_text
from headrace.cli.run_view.run_display import RunDisplay
from headrace.cli.run_view.view import choose_view
from headrace.event_json import parse_event


class Chat(msgspec.Struct, frozen=True, rename="camel"):
    """A chat as GET /api/chats has it."""

    chat_id: str
    title: str
    first_agent_key: str
    updated_at: int
    owner: str = ""
    access: str = ""


class Renamed(msgspec.Struct, frozen=True):
    """What POST /api/chat answers."""

    title: str


class Shared(msgspec.Struct, frozen=True, rename="camel"):
    """What POST /api/chat/share answers."""

    shared_with: list[str] = []
    participants: list[str] = []


class Hit(msgspec.Struct, frozen=True, rename="camel"):
    """A place as GET /api/search has it."""

    chat_id: str
    title: str
    excerpt: str


class History(msgspec.Struct, frozen=True, rename="camel"):
    """A page of a chat as GET /api/chat has it."""

    events: tuple[msgspec.Raw, ...]
    earlier_page_token: str = ""


@click.group()
def chats() -> None:
    """List chats, show one, take one back; move and clear them."""


for command in (checkpoints, revert, state, pin, pins, summary):
    chats.add_command(command)
for command in (export_chats, import_chats, move_blobs, prune_chats, reindex_chats, verify_chats):
    chats.add_command(command)
for command in (list_data_keys, rotate_data_keys, reencrypt_chats):
    chats.add_command(command)


@chats.command("list")
@url_option
@click.option("--count", default=50, show_default=True, type=click.IntRange(1, 200), help="How many, newest first.")
@click.option("--shared", is_flag=True, help="Those of others, with their owners and what you may do.")
def list_chats(url: str, count: int, shared: bool) -> None:
    """List chats, the last changed first: id, time, agent, title."""
    asked = {"pageSize": str(count)} | ({"scope": "shared"} if shared else {})
    data = make_request(url, lambda facade: facade.get("/api/chats", **asked))
    page = msgspec.json.decode(data, type=list[Chat])
    for chat in page:
        owner = f"{chat.owner}  {'take part' if chat.access == 'take_part' else 'read'}  " if shared else ""
        print_text(f"{chat.chat_id}  {format_time(chat.updated_at)}  {owner}{chat.first_agent_key}  {chat.title}")


@chats.command()
@url_option
@click.argument("chat_id")
@click.argument("names", nargs=-1)
@click.option(
    "--take-part", "participants", multiple=True, metavar="NAME", help="Who may ask in it too; again for more."
)
def share(url: str, chat_id: str, names: tuple[str, ...], participants: tuple[str, ...]) -> None:
    """Let NAMES read the chat CHAT_ID, and nobody else: tenant, user:NAME, role:NAME; without one it is private."""
    body = {"chatId": chat_id, "sharedWith": names, "participants": participants}
    data = make_request(url, lambda facade: facade.post("/api/chat/share", body))
    shared = msgspec.json.decode(data, type=Shared)
    told = [f"{name} (takes part)" if name in shared.participants else name for name in shared.shared_with]
    print_text(f"shared with {', '.join(told)}" if told else "private")


@chats.command()
@url_option
@click.argument("chat_id")
@click.argument("title")
def rename(url: str, chat_id: str, title: str) -> None:
    """Give the chat CHAT_ID another TITLE; with an empty one, the first words of its first message again."""
    body = {"chatId": chat_id, "title": title}
    data = make_request(url, lambda facade: facade.post("/api/chat", body))
    print_text(msgspec.json.decode(data, type=Renamed).title)


@chats.command()
@url_option
@click.argument("words", nargs=-1, required=True)
def search(url: str, words: tuple[str, ...]) -> None:
    """Search titles and texts of chats for WORDS, the best places first: id, title, text."""
    query = " ".join(words)
    data = make_request(url, lambda facade: facade.get("/api/search", query=query, scope="chats"))
    for hit in msgspec.json.decode(data, type=list[Hit]):
        print_text(f"{hit.chat_id}  {hit.title}\n    {hit.excerpt}")


def _load_events(url: str, chat_id: str) -> list[msgspec.Raw]:
    """Return the events of all pages, which come the newest first."""
    pages = [_load_page(url, chatId=chat_id)]
    while token := pages[-1].earlier_page_token:
        pages.append(_load_page(url, chatId=chat_id, pageToken=token))
    return [event for page in reversed(pages) for event in page.events]


def _load_page(url: str, **parameters: str) -> History:
    data = make_request(url, lambda facade: facade.get("/api/chat", **parameters))
    return msgspec.json.decode(data, type=History)


@chats.command()
@url_option
@click.argument("chat_id")
def show(url: str, chat_id: str) -> None:
    """Show everything that happened in the chat CHAT_ID."""
    view = choose_view()
    display = RunDisplay(view)
    events = [parse_event(bytes(event)) for event in _load_events(url, chat_id)]
    is_of_several = len({event.request_query.by for event in events if event.HasField("request_query")}) > 1
    for event in events:
        if event.HasField("request_query"):
            view.show_query(event.request_query.message, event.request_query.by if is_of_several else "")
        display.show_event(event)
