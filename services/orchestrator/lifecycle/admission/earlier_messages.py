"""Checks the conversation that a query brings along: its roles, and that every result has its call."""

from __future__ import annotations

from itertools import chain

from headrace.errors import InvalidRequest
from headrace.v1 import agent_pb2

PROGRESS_ROLES = ("assistant", "tool")

CALLS_MAX = 10_000
"""Calls of all messages together: each turn pairs them, 20 µs each."""


def check_earlier_messages(query: agent_pb2.QueryRequest) -> None:
    """Raise InvalidRequest, which names the field, for a conversation that no model could have had.

    A call without a result is none: models are shown one that says so.
    """
    if sum(len(message.tool_calls) for message in (*query.history, *query.progress)) > CALLS_MAX:
        raise InvalidRequest.of("history", f"must not have more than {CALLS_MAX} toolCalls, with those of progress")
    open_calls: set[str] = set()
    history = ((f"history[{at}]", message) for at, message in enumerate(query.history))
    progress = ((f"progress[{at}]", message) for at, message in enumerate(query.progress))
    for name, message in chain(history, progress):
        _check_fields(message, name)
        if message.role == "tool":
            if message.tool_call_id not in open_calls:
                raise InvalidRequest.of(
                    f"{name}.toolCallId", "must be the id of an earlier call that has no result yet"
                )
            open_calls.remove(message.tool_call_id)
        ids = [call.id for call in message.tool_calls]
        if len(set(ids)) < len(ids):
            raise InvalidRequest.of(f"{name}.toolCalls", "must each have an id of its own")
        open_calls.update(ids)


def _check_fields(message: agent_pb2.EarlierMessage, name: str) -> None:
    if name.startswith("progress") and message.role not in PROGRESS_ROLES:
        raise InvalidRequest.of(f"{name}.role", f"must be one of {', '.join(PROGRESS_ROLES)}")
    if message.tool_calls and message.role != "assistant":
        raise InvalidRequest.of(f"{name}.toolCalls", "must be in messages of role assistant alone")
    if message.HasField("tool_call_id") != (message.role == "tool"):
        raise InvalidRequest.of(f"{name}.toolCallId", "must be in messages of role tool, and there alone")
