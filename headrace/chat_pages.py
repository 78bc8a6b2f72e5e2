"""Reads all pages of a chat."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from headrace.v1 import memory_pb2


async def read_chat(
    get_page: Callable[[memory_pb2.GetChatRequest], Awaitable[memory_pb2.GetChatResponse]], chat_id: str
) -> memory_pb2.GetChatResponse:
    """Return a chat's newest page, extended by the events and references of all pages."""
    pages = [await get_page(memory_pb2.GetChatRequest(chat_id=chat_id))]
    while token := pages[-1].earlier_page_token:
        pages.append(await get_page(memory_pb2.GetChatRequest(chat_id=chat_id, page_token=token)))
    chat = memory_pb2.GetChatResponse()
    chat.CopyFrom(pages[0])
    del chat.events[:], chat.references[:]
    references = {reference.id: reference for page in reversed(pages) for reference in page.references}
    for page in reversed(pages):
        chat.events.extend(page.events)
    chat.references.extend(references.values())
    chat.earlier_page_token = ""
    return chat
