"""The events of a run as the command line reads them: one type for all, with the fields that are shown."""

from __future__ import annotations

import msgspec

from headrace.cli.spent import Usage


class Failure(msgspec.Struct, frozen=True):
    """Why a run or a task has failed."""

    code: str = ""
    message: str = ""
    retriable: bool = False


class Task(msgspec.Struct, frozen=True, rename="camel"):
    """One task of a plan."""

    task_id: str = ""
    description: str = ""
    status: str = ""

    @property
    def words(self) -> str:
        """For people."""
        return f"[{self.status}] {self.description}"


class Event(msgspec.Struct, frozen=True, rename="camel"):
    """One event of the contract; a field that its type does not have is empty."""

    type: str
    seq: int = 0
    run_id: str = ""
    chat_id: str = ""
    subagent_id: str = ""
    task_id: str = ""
    parent_id: str = ""
    task_name: str = ""
    description: str = ""
    agent_key: str = ""
    message: str = ""
    content_id: str = ""
    reasoning_id: str = ""
    tool_id: str = ""
    tool_name: str = ""
    tool_type: str = ""
    tool_params: msgspec.Raw = msgspec.Raw(b"")
    """JSON."""
    approval_id: str = ""
    risk: str = ""
    decision: str = ""
    by: str = ""
    note: str = ""
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
    summary: str = ""
    name: str = ""
    url: str = ""
    pre_tokens: int = 0
    post_tokens: int = 0
    usage: Usage = Usage()
    finish_reason: str = ""
    error: Failure = Failure()
    plan: tuple[Task, ...] = ()

    @property
    def scope(self) -> tuple[str, str]:
        """Where it happened: the sub-agent and the task, both empty for the run itself."""
        return self.subagent_id, self.task_id


decode = msgspec.json.Decoder(Event).decode
"""An event from its JSON."""

decode_many = msgspec.json.Decoder(list[Event]).decode
"""A chat's events from their JSON."""
