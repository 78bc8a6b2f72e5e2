"""Reminders end a request and are not stored, so that the bytes before them stay the same."""

from __future__ import annotations

from typing import TYPE_CHECKING

from services.memory.context.message_pairing import make_text_message

if TYPE_CHECKING:
    from collections.abc import Iterable

    from headrace.v1 import llm_pb2


def format_reminder(texts: Iterable[str]) -> str:
    text = "\n".join(text for text in texts if text)
    return f"<system_reminder>\n{text}\n</system_reminder>" if text else ""


def append_reminder(messages: list[llm_pb2.Message], text: str) -> None:
    """Add `text` to the last message if that is a user's, else after it."""
    if not text:
        return
    if messages and messages[-1].role == "user":
        # Of its own: what the messages were made of is not changed.
        last = messages[-1].__class__()
        last.CopyFrom(messages[-1])
        last.content.add(text=text)
        messages[-1] = last
    else:
        messages.append(make_text_message("user", text))
