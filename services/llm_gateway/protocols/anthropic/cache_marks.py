"""Marks of what the provider may cache, at most four in a request.

The prefix up to a mark is cached. A later request finds it when a mark of its own lies at most 20 blocks behind, so the
conversation has two: at its end, and at the end of the user's turn before, where the last request had its own. The
first turn has one too: after a compaction it begins with the summary, which stays when all behind it goes.
https://platform.claude.com/docs/en/build-with-claude/prompt-caching (2026-11).
"""

from __future__ import annotations

from typing import Any, Final

MARK: Final = {"cache_control": {"type": "ephemeral"}}

MARKED_TURNS = 2


def mark_cache(body: dict[str, Any]) -> None:
    """Mark the ends of instructions (or else tools), of the user's first turn, and of the last two."""
    if system := body.get("system"):
        body["system"] = [{"type": "text", "text": system} | MARK]
    elif tools := body.get("tools"):
        tools[-1] |= MARK
    turns = [turn for turn in body["messages"] if turn["role"] == "user"]
    for turn in (*turns[:1], *turns[1:][-MARKED_TURNS:]):
        turn["content"][-1] |= MARK
