"""A chat that comes in pages."""

from __future__ import annotations

from collections.abc import Sequence

from headrace.v1 import memory_pb2


def merge_pages(pages: Sequence[memory_pb2.GetChatResponse]) -> memory_pb2.GetChatResponse:
    """Return the newest page, which comes first, with the events and references of all."""
    chat = memory_pb2.GetChatResponse()
    chat.CopyFrom(pages[0])
    del chat.events[:], chat.references[:]
    references = {reference.id: reference for page in reversed(pages) for reference in page.references}
    for page in reversed(pages):
        chat.events.extend(page.events)
    chat.references.extend(references.values())
    chat.earlier_page_token = ""
    return chat
