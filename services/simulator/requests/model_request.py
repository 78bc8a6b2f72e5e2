"""A request as the answering side sees it, in no provider's form."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ToolResult:
    """A tool's result that came back since the last user message."""

    name: str
    content: str


@dataclass(frozen=True, slots=True)
class ModelRequest:
    """A checked request."""

    model: str

    system: str
    """The system prompt."""

    text: str
    """The last user message."""

    preceding_text: str
    """The user messages that stand directly before it."""

    turn: int
    """1 for the answer to a user message, 2 after its first tool results, and so on."""

    results: tuple[ToolResult, ...]
    """Results of the newest assistant message's calls, in order; empty in turn 1."""

    tools: dict[str, frozenset[str]]
    """Offered tools in order, with the names of their parameters."""

    prompt_tokens: int
    """Estimated: four characters a token."""

    stream: bool
    include_usage: bool


class RequestRefused(Exception):
    """The request is one that a real provider answers with 400."""
