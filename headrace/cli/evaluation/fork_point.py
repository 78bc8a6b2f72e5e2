"""Builds a query that continues a recorded run from one of its steps; everything before is history and progress."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from headrace.cassette.lines import Cassette

CHAT = "LlmService/StreamChat"

STAGES = ("oneshot", "react")
"""Stages of the run's own turns; in order, these turns are its steps."""

REMINDER = "<system_reminder>"
"""Start of text that a request adds to the conversation."""


class NoForkPoint(ValueError):
    """The run cannot be forked there; the message says why."""


def list_steps(cassette: Cassette) -> list[dict[str, Any]]:
    """Return the requests of the run's own turns; those of sub-agents lack the run's question."""
    calls = [line.given for line in cassette.recorder if line.kind == "call" and line.given["method"] == CHAT]
    requests = [call["request"] for call in calls if call["request"].get("stage") in STAGES]
    question = cassette.query["message"]
    return [request for request in requests if _find_question(request["messages"], question) is not None]


def make_query(cassette: Cassette, step: int, results: Mapping[str, str]) -> dict[str, Any]:
    """Return the body of the query; `results` replaces tool results, by call id or tool name.

    Raises:
        NoForkPoint: There is no such step or call, or a query cannot express the earlier messages.
    """
    steps = list_steps(cassette)
    if not 1 <= step <= len(steps):
        kind = "runs with a plan have none" if not steps else f"it has {len(steps)}"
        raise NoForkPoint(f"there is no step {step} of the run itself: {kind}")
    messages = [message for message in steps[step - 1]["messages"] if message.get("role") != "system"]
    at = _find_question(messages, cassette.query["message"])
    assert at is not None, "it is a step of the run itself"
    progress = [message for message in map(_convert, messages[at + 1 :]) if message is not None]
    if any(message["role"] == "user" for message in progress):
        raise NoForkPoint(f"step {step} comes after a message that a person has sent; fork from an earlier one")
    _replace_results(progress, results)
    query = {name: cassette.query[name] for name in ("message", "deepThink") if name in cassette.query}
    if "params" in cassette.query:
        query["params"] = json.loads(cassette.query["params"])
    history = [message for message in map(_convert, messages[:at]) if message is not None]
    return query | {"agentKey": cassette.header["agentKey"], "history": history, "progress": progress}


def _find_question(messages: list[dict[str, Any]], question: str) -> int | None:
    found = [
        index
        for index, message in enumerate(messages)
        if message.get("role") == "user" and any(part.get("text") == question for part in message.get("content", []))
    ]
    return found[-1] if found else None


def _convert(message: dict[str, Any]) -> dict[str, Any] | None:
    """Return a message in the form of a query; None for one that contains only reminders to the model."""
    parts = message.get("content", [])
    if any("text" not in part for part in parts if part):
        raise NoForkPoint("a picture, sound or file was said before that step, which a query cannot say")
    texts = [part.get("text", "") for part in parts]
    content = "\n\n".join(text for text in texts if text and not text.startswith(REMINDER))
    if message["role"] == "user" and not content:
        return None
    converted: dict[str, Any] = {"role": message["role"], "content": content}
    if calls := message.get("toolCalls"):
        converted["toolCalls"] = [{name: call.get(name, "") for name in ("id", "name", "arguments")} for call in calls]
    if "toolCallId" in message:
        converted["toolCallId"] = message["toolCallId"]
    return converted


def _replace_results(progress: Iterable[dict[str, Any]], results: Mapping[str, str]) -> None:
    names: dict[str, str] = {}
    used: set[str] = set()
    for message in progress:
        names |= {call["id"]: call["name"] for call in message.get("toolCalls", [])}
        call_id = message.get("toolCallId", "")
        for key in (call_id, names.get(call_id, "")):
            if key in results:
                message["content"] = results[key]
                used.add(key)
    if missing := sorted(results.keys() - used):
        raise NoForkPoint(f"no call {missing[0]!r} has a result before that step; calls: {', '.join(names) or 'none'}")
