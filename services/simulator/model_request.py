"""A checked request, independent of its protocol, and the user's own words without the suite's additions."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

REMINDER = re.compile(r"(?:\n\n)?<system_reminder>.*?</system_reminder>", re.DOTALL)
COMPACTING = "The conversation is about to be compacted"
"""Beginning of the suite's request for a summary."""

UPLOAD = re.compile(
    rf"(?:^|\n\n)\[(?:(?:File|image|audio|pdf): |in the result of )[^\]\n]*\].*?(?=\n\n{COMPACTING}|\Z)", re.DOTALL
)
"""Matches the label of a file shown to the model, and the text after it up to a request for a summary."""


@dataclass(frozen=True, slots=True)
class ToolResult:
    """A tool's result since the last user message."""

    name: str
    content: str


@dataclass(frozen=True, slots=True)
class SaidText:
    """A text of the conversation; a user's text is without the suite's additions."""

    role: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelRequest:
    model: str

    system: str

    text: str
    """The last user message, without the suite's additions."""

    reminder: str
    """Text of the suite after the last message; not the user's words."""

    dialogue: tuple[SaidText, ...]
    """Texts of user and assistant, oldest first."""

    turn: int
    """1 for the answer to a user message, 2 after its first tool results, and so on."""

    results: tuple[ToolResult, ...]
    """Results of the newest assistant message's calls, in order; empty in turn 1."""

    tools: dict[str, frozenset[str]]
    """Parameter names by offered tool, in order."""

    descriptions: dict[str, str]
    """Descriptions by offered tool."""

    may_call: bool
    """Whether a tool may be called: False if tools are shown and the choice is none."""

    prompt_tokens: int
    """Estimated at four characters per token."""

    stream: bool
    include_usage: bool

    cached_tokens: int = 0
    """Prompt tokens found in an automatic prefix cache."""


class RequestRefused(Exception):
    """A request that a real provider would refuse with 400."""


def read_texts(content: Any) -> list[str]:
    """Return the texts of a message's content, which is one text or a list of parts, without reminders and uploads."""
    texts = (UPLOAD.sub("", drop_reminders(part)).strip() for part in _list_parts(content))
    return [text for text in texts if text]


def drop_reminders(text: str) -> str:
    return REMINDER.sub("", text)


def read_reminder(content: Any) -> str:
    return "\n".join(text for part in _list_parts(content) for text in REMINDER.findall(part))


def _list_parts(content: Any) -> list[str]:
    parts = [content] if isinstance(content, str) else [part.get("text") for part in content or ()]
    return [part for part in parts if isinstance(part, str)]
