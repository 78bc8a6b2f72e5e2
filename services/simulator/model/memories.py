"""Plays a model that remembers its user: the call that keeps a fact, and answers from facts that it is shown."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from services.simulator.requests.model_request import ModelRequest

_WISH = re.compile(r"\bremember(?: that)?\s+(\S.{2,300})", re.IGNORECASE | re.DOTALL)
_FACT = re.compile(r"^- (.+)$", re.MULTILINE)
_WORD = re.compile(r"\w{4,}")


def choose_memory_call(request: ModelRequest) -> tuple[str, dict[str, object]] | None:
    """Choose the call by which the user's wish to remember something is done."""
    wish = _WISH.search(request.text) if "remember" in request.tools else None
    if wish is None:
        return None
    fact = " ".join(wish[1].split())
    return "remember", {"fact": fact[:1].upper() + fact[1:]}


def answer_from_facts(request: ModelRequest) -> str:
    """Answer with the facts that share a word with the question; empty if none does."""
    if "recall" not in request.tools:
        return ""
    asked = _collect_words(request.text)
    known = [fact for fact in _FACT.findall(request.reminder) if asked & _collect_words(fact)]
    return f"I remember: {' '.join(known)}" if known else ""


def _collect_words(text: str) -> set[str]:
    return {word.casefold() for word in _WORD.findall(text)}
