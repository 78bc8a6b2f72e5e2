"""A checked request in no provider's form."""

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
    """User messages directly before the last."""

    turn: int
    """1 for the answer to a user message, 2 after its first tool results, and so on."""

    results: tuple[ToolResult, ...]
    """Results of the newest assistant message's calls, in order; empty in turn 1."""

    tools: dict[str, frozenset[str]]
    """Parameter names by offered tool, in order."""

    prompt_tokens: int
    """Estimate at four characters a token."""

    stream: bool
    include_usage: bool


class RequestRefused(Exception):
    """A request that a real provider answers with 400."""
