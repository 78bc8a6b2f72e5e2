"""The events of a run as the command line reads them: one type for all, with the fields that are shown."""

from __future__ import annotations

import msgspec


class Failure(msgspec.Struct, frozen=True):
    """Why a run or a task has failed."""

    code: str = ""
    message: str = ""


class Task(msgspec.Struct, frozen=True, rename="camel"):
    """One task of a plan."""

    task_id: str = ""
    description: str = ""
    status: str = ""


class Event(msgspec.Struct, frozen=True, rename="camel"):
    """One event of the contract; a field that its type does not have is empty."""

    type: str
    seq: int = 0
    run_id: str = ""
    chat_id: str = ""
    subagent_id: str = ""
    task_id: str = ""
    task_name: str = ""
    agent_key: str = ""
    message: str = ""
    content_id: str = ""
    reasoning_id: str = ""
    tool_id: str = ""
    tool_name: str = ""
    action_id: str = ""
    action_name: str = ""
    arguments: msgspec.Raw = msgspec.Raw(b"")
    """JSON."""
    delta: str = ""
    text: str = ""
    result: str = ""
    ok: bool = True
    reason: str = ""
    goal: str = ""
    finish_reason: str = ""
    error: Failure = Failure()
    plan: tuple[Task, ...] = ()


decode = msgspec.json.Decoder(Event).decode
"""An event from its JSON."""

decode_many = msgspec.json.Decoder(list[Event]).decode
"""A chat's events from their JSON."""
