"""Answers to the suite's questions outside of a run's turns, recognized by their words, and memory of the user."""

from __future__ import annotations

import re

from services.simulator.model_request import COMPACTING, ModelRequest

DRAFT = re.compile(r"<draft>\n(.*)\n</draft>", re.DOTALL)
THOUGHT, CHOICE = "what an assistant thought", "which agent is to answer"
AGENT = re.compile(r"^- ([\w.-]+): (.*)$", re.MULTILINE)
WORD = re.compile(r"\w{4,}")

SECTIONS = (
    *("Primary request and intent", "Key concepts", "Files and code", "Errors and fixes", "Problem solving"),
    *("All user messages", "Pending tasks", "Current work", "Next step"),
)
MESSAGES_MAX, MESSAGE_CHARS_MAX = 20, 200
"""Maximum number and length of the user's messages that a summary quotes."""

_WISH = re.compile(r"\bremember(?: that)?\s+(\S.{2,300})", re.IGNORECASE | re.DOTALL)
_FACT = re.compile(r"^- (.+?)(?: \(since [0-9-]{10}\))?$", re.MULTILINE)


def answer_side_question(request: ModelRequest) -> str | None:
    """Answer a side question; None for any other request."""
    if draft := DRAFT.search(request.reminder):
        return f"{draft[1]} I have read this twice."
    if COMPACTING in request.text:
        return _summarise(request)
    if request.tools:
        return None
    if THOUGHT in request.system:
        return "It was looked for what the question needs, and answered shortly."
    return _pick_agent(request) if CHOICE in request.system else None


def _summarise(request: ModelRequest) -> str:
    """Write a summary that quotes the user, with all sections that the suite requires."""
    asked = [
        " ".join(message.text.split())[:MESSAGE_CHARS_MAX] for message in request.dialogue if message.role == "user"
    ]
    asked = [text for text in asked if COMPACTING not in text][-MESSAGES_MAX:] or ["in the part that was given"]
    facts = {1: asked[-1], 6: " / ".join(asked)}
    lines = [f"{number}. {name}: {facts.get(number, 'none')}" for number, name in enumerate(SECTIONS, 1)]
    return "<summary>\n" + "\n".join(lines) + "\n</summary>"


def _pick_agent(request: ModelRequest) -> str:
    """Return the agent with a description that shares most words with the message."""
    message_words = _collect_words(request.text)
    agents = AGENT.findall(request.system)
    return (
        max(agents, key=lambda agent: len(message_words & _collect_words(f"{agent[0]} {agent[1]}")))[0]
        if agents
        else ""
    )


def _collect_words(text: str) -> set[str]:
    return {word.casefold() for word in WORD.findall(text)}


def choose_memory_call(request: ModelRequest) -> tuple[str, dict[str, object]] | None:
    """Choose the call that stores a fact, if the user asks to remember something."""
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
