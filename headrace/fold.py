"""The state of a run, folded from the events of Query, Attach or a chat's history.

    state = Fold()
    async with headrace.attach(run_id) as deltas:
        async for delta in deltas:
            state.apply(delta)
    print(state.answer)

A start or a snapshot replaces a known block, a delta appends to it, and an attempt.reset drops the blocks of its scope
(the run, a plan task or a sub-agent) that began after its from_seq. So the same object reads on after attaching again.
tests/fold_cases.json holds cases for readers in other languages.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from headrace.v1 import agent_pb2, common_pb2

BlockKind: TypeAlias = Literal["content", "reasoning", "tool", "action"]
TaskStatus: TypeAlias = Literal["started", "completed", "canceled", "failed"]
Scope: TypeAlias = tuple[str, str]
"""Ids of sub-agent and plan task; both empty for the run itself."""

TERMINAL = frozenset({"run_complete", "run_cancel", "run_error"})
"""Payload fields that end a run."""

_RUN: Scope = ("", "")


@dataclass(slots=True)
class Block:
    """A text of answer or reasoning, or a call of a tool or action."""

    kind: BlockKind
    id: str
    seq: int
    """Sequence number of the opening event."""
    scope: Scope
    name: str = ""
    tool_type: str = ""
    """The tool's type: backend, frontend or orchestrator."""
    tool_api: str = ""
    is_answer: bool = False
    """Whether a text is the run's answer or a part of it, unless a call of the run itself follows."""
    pieces: list[str] = field(default_factory=list[str])
    is_complete: bool = False
    """Whether the text is whole; a call may still run."""
    params: str = ""
    """A call's final arguments as JSON; empty before, or if invalid."""
    result: str | None = None
    """A call's result as the model has it; None before."""
    ok: bool = True
    """False if a tool failed or did not run."""

    @property
    def text(self) -> str:
        """The text so far; for a call, its arguments."""
        return "".join(self.pieces)

    @property
    def is_call(self) -> bool:
        return self.kind in ("tool", "action")


@dataclass(slots=True)
class Task:
    id: str
    subagent_id: str
    """The sub-agent with the plan; empty for the run's own."""
    name: str = ""
    description: str = ""
    status: TaskStatus = "started"
    summary: str = ""
    error: common_pb2.Failure | None = None


@dataclass(slots=True)
class Subagent:
    id: str
    parent_id: str
    """The calling run or sub-agent."""
    task_id: str
    """The calling plan task, if any."""
    agent_key: str
    depth: int
    """Level below the run, from 1."""
    goal: str
    ok: bool | None = None
    """Whether it has a result; None while it works."""
    summary: str = ""


class Fold:
    """The state of a run, or of a chat's runs, after the events so far."""

    def __init__(self) -> None:
        self.run_id = ""
        self.chat_id = ""
        self.last_seq = 0
        """The current run's highest sequence number, to attach again with."""
        self.plans: dict[str, list[agent_pb2.Task]] = {}
        """Each plan's latest tasks, by plan id."""
        self.tasks: dict[str, Task] = {}
        self.subagents: dict[str, Subagent] = {}
        self.end: agent_pb2.AgentDelta | None = None
        """The current run's terminal event; None while it goes on."""
        self._blocks: dict[str, Block] = {}
        self._earlier_blocks: dict[str, Block] = {}
        """Blocks of earlier runs, which no attempt.reset drops."""

    @property
    def blocks(self) -> dict[str, Block]:
        """All blocks by id, in order of beginning; not to be changed."""
        return self._earlier_blocks | self._blocks if self._earlier_blocks else self._blocks

    @property
    def answer(self) -> str:
        """The current run's answer: the text after its last call, without its planner, sub-agents and tasks."""
        texts: list[str] = []
        for block in self._blocks.values():
            if block.scope == _RUN and block.is_call:
                texts.clear()
            elif block.is_answer:
                texts += block.pieces
        return "".join(texts)

    def apply(self, delta: agent_pb2.AgentDelta) -> None:
        """Take the next event; unknown ones change nothing."""
        self.last_seq = max(self.last_seq, delta.seq)
        match delta.WhichOneof("payload"):
            case "content_delta":
                self._append(delta.content_delta.content_id, delta.content_delta.delta)
            case "reasoning_delta":
                self._append(delta.reasoning_delta.reasoning_id, delta.reasoning_delta.delta)
            case "tool_args":
                self._append(delta.tool_args.tool_id, delta.tool_args.delta)
            case "action_args":
                self._append(delta.action_args.action_id, delta.action_args.delta)
            case "attempt_reset":
                scope, from_seq = find_scope(delta), delta.attempt_reset.from_seq
                kept = (block for block in self._blocks.values() if block.scope != scope or block.seq <= from_seq)
                self._blocks = {block.id: block for block in kept}
            case None:
                pass
            case name if name.startswith(("content_", "reasoning_")):
                self._apply_text(name, delta)
            case name if name.startswith(("tool_", "action_")):
                self._apply_call(name, delta)
            case name if name.startswith(("task_", "plan_", "subagent_")):
                self._apply_task(name, delta)
            case name:
                self._apply_run(name, delta)

    def _apply_text(self, name: str, delta: agent_pb2.AgentDelta) -> None:
        match name:
            case "content_start":
                self._open_content(delta, delta.content_start)
            case "reasoning_start":
                self._open_block(delta, "reasoning", delta.reasoning_start.reasoning_id)
            case "content_end":
                self._complete(delta.content_end.content_id)
            case "reasoning_end":
                self._complete(delta.reasoning_end.reasoning_id)
            case "content_snapshot":
                snapshot = delta.content_snapshot
                self._open_content(delta, snapshot, snapshot.text).is_complete = True
            case "reasoning_snapshot":
                snapshot = delta.reasoning_snapshot
                self._open_block(delta, "reasoning", snapshot.reasoning_id, snapshot.text).is_complete = True
            case _:
                pass

    def _apply_call(self, name: str, delta: agent_pb2.AgentDelta) -> None:
        match name:
            case "tool_start":
                self._open_tool(delta, delta.tool_start)
            case "tool_end":
                self._complete(delta.tool_end.tool_id, delta.tool_end.tool_params)
            case "tool_result":
                result = delta.tool_result
                self._add_result(result.tool_id, result.result, ok=result.ok)
            case "tool_snapshot":
                snapshot = delta.tool_snapshot
                block = self._open_tool(delta, snapshot, snapshot.arguments)
                block.params, block.is_complete = snapshot.tool_params, True
            case "action_start":
                start = delta.action_start
                self._open_block(delta, "action", start.action_id).name = start.action_name
            case "action_end":
                self._complete(delta.action_end.action_id)
            case "action_param":
                self._complete(delta.action_param.action_id, delta.action_param.param)
            case "action_result":
                self._add_result(delta.action_result.action_id, delta.action_result.result, ok=True)
            case "action_snapshot":
                snapshot = delta.action_snapshot
                block = self._open_block(delta, "action", snapshot.action_id, snapshot.arguments)
                block.name, block.is_complete = snapshot.action_name, True
            case _:
                pass

    def _apply_task(self, name: str, delta: agent_pb2.AgentDelta) -> None:
        match name:
            case "plan_create":
                self.plans[delta.plan_create.plan_id] = list(delta.plan_create.plan)
            case "plan_update":
                self.plans[delta.plan_update.plan_id] = list(delta.plan_update.plan)
            case "task_start":
                start = delta.task_start
                task = Task(start.task_id, delta.subagent_id, start.task_name, start.description)
                self.tasks[task.id] = task
            case "task_complete" if task := self.tasks.get(delta.task_complete.task_id):
                task.status, task.summary = "completed", delta.task_complete.summary
            case "task_cancel" if task := self.tasks.get(delta.task_cancel.task_id):
                task.status = "canceled"
            case "task_fail" if task := self.tasks.get(delta.task_fail.task_id):
                task.status, task.error = "failed", delta.task_fail.error
            case "subagent_start":
                begun = delta.subagent_start
                self.subagents[begun.subagent_id] = Subagent(
                    begun.subagent_id, begun.parent_id, delta.task_id, begun.agent_key, begun.depth, begun.goal
                )
            case "subagent_end" if subagent := self.subagents.get(delta.subagent_end.subagent_id):
                subagent.ok, subagent.summary = delta.subagent_end.ok, delta.subagent_end.summary
            case _:
                pass

    def _apply_run(self, name: str, delta: agent_pb2.AgentDelta) -> None:
        match name:
            case "request_query":
                self.chat_id = delta.request_query.chat_id or self.chat_id
            case "chat_start":
                self.chat_id = delta.chat_start.chat_id
            case "run_start" if delta.run_start.run_id != self.run_id:
                self.run_id, self.chat_id = delta.run_start.run_id, delta.run_start.chat_id or self.chat_id
                self.last_seq, self.end = delta.seq, None
                self._earlier_blocks = self.blocks
                self._blocks = {}
            case _ if name in TERMINAL:
                self.end = delta
            case _:
                pass

    def _open_block(self, delta: agent_pb2.AgentDelta, kind: BlockKind, block_id: str, text: str = "") -> Block:
        block = Block(kind, block_id, delta.seq, find_scope(delta), pieces=[text] if text else [])
        self._blocks[block_id] = block
        return block

    def _open_content(
        self, delta: agent_pb2.AgentDelta, opened: agent_pb2.ContentStart | agent_pb2.ContentSnapshot, text: str = ""
    ) -> Block:
        block = self._open_block(delta, "content", opened.content_id, text)
        block.is_answer = opened.is_answer if opened.HasField("is_answer") else block.scope == _RUN
        return block

    def _open_tool(
        self, delta: agent_pb2.AgentDelta, call: agent_pb2.ToolStart | agent_pb2.ToolSnapshot, text: str = ""
    ) -> Block:
        block = self._open_block(delta, "tool", call.tool_id, text)
        block.name, block.tool_type, block.tool_api = call.tool_name, call.tool_type, call.tool_api
        return block

    def _append(self, block_id: str, text: str) -> None:
        if block := self._blocks.get(block_id):
            block.pieces.append(text)

    def _complete(self, block_id: str, params: str = "") -> None:
        if block := self._blocks.get(block_id):
            block.is_complete, block.params = True, params

    def _add_result(self, block_id: str, result: str, *, ok: bool) -> None:
        if block := self._blocks.get(block_id):
            block.result, block.ok = result, ok


def find_scope(delta: agent_pb2.AgentDelta) -> Scope:
    """Return an event's scope; one about a task or sub-agent is within it."""
    payload = getattr(delta, delta.WhichOneof("payload") or "", None)
    return getattr(payload, "subagent_id", delta.subagent_id), getattr(payload, "task_id", delta.task_id)


def fold_events(deltas: Iterable[agent_pb2.AgentDelta]) -> Fold:
    state = Fold()
    for delta in deltas:
        state.apply(delta)
    return state
