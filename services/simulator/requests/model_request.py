"""A checked request to the model, in no provider's form."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ToolResult:
    """A tool's result since the last user message."""

    name: str
    content: str


@dataclass(frozen=True, slots=True)
class ModelRequest:
    model: str

    system: str

    text: str
    """The last user message."""

    preceding_text: str
    """The user messages directly before it."""

    turn: int
    """1 for the answer to a user message, 2 after its first tool results, and so on."""

    results: tuple[ToolResult, ...]
    """Results of the newest assistant message's calls, in order; empty in turn 1."""

    tools: dict[str, frozenset[str]]
    """Offered tools in order, with the names of their parameters."""

    prompt_tokens: int
    """Estimated at four characters a token."""

    stream: bool
    include_usage: bool


class RequestRefused(Exception):
    """A real provider answers such a request with 400."""
