"""Answers to the suite's questions outside a run's turns, recognized by words of their prompts."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from services.simulator.requests.model_request import ModelRequest

DRAFT = re.compile(r"<draft>\n(.*)\n</draft>", re.DOTALL)
THOUGHT, CHOICE = "what an assistant thought", "which agent is to answer"
AGENT = re.compile(r"^- ([\w.-]+): (.*)$", re.MULTILINE)
WORD = re.compile(r"\w{4,}")


def answer_side_question(request: ModelRequest) -> str | None:
    """Answer a side question; None for any other request."""
    if draft := DRAFT.search(request.text):
        return f"{draft[1]} I have read this twice."
    if request.tools:
        return None
    if THOUGHT in request.system:
        return "It was looked for what the question needs, and answered shortly."
    return _pick_agent(request) if CHOICE in request.system else None


def _pick_agent(request: ModelRequest) -> str:
    """Pick the agent whose description shares most words with the message."""
    message_words = _collect_words(request.text)
    agents = AGENT.findall(request.system)
    return (
        max(agents, key=lambda agent: len(message_words & _collect_words(f"{agent[0]} {agent[1]}")))[0]
        if agents
        else ""
    )


def _collect_words(text: str) -> set[str]:
    return {word.casefold() for word in WORD.findall(text)}
