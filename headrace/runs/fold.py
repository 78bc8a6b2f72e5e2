"""The state of a run, folded from the events of Query, Attach or a chat's history.

    state = Fold()
    async with headrace.attach(run_id) as deltas:
        async for delta in deltas:
            state.apply(delta)
    print(state.answer)

A start or a snapshot replaces a known block, a delta appends to it, and an attempt.reset drops the blocks of its scope
(the run, a plan task or a sub-agent) that started after its from_seq. The same object can therefore be used again after
reattaching. `apply` returns the changes made by an event, for readers that forward a run.
tests/fold_cases.json holds test cases for readers in other languages.
"""

from __future__ import annotations

from collections.abc import Iterable

from headrace.runs.parts import (
    CLIENT,
    RUN,
    Block,
    BlockBegun,
    BlockEnded,
    BlockKind,
    BlocksLost,
    CallAnswered,
    Changes,
    FilePublished,
    Gate,
    GateClosed,
    GateOpened,
    RunBegun,
    RunEnded,
    Scope,
    Subagent,
    Task,
    TextAdded,
)
from headrace.v1 import agent_pb2

TERMINAL = frozenset({"run_complete", "run_cancel", "run_error"})
"""Payload fields that end a run."""

FILES_MAX = 50
"""Maximum number of a run's files that are kept, the first ones."""


class Fold:
    """The state of a run, or of a chat's runs, after the events so far."""

    def __init__(self) -> None:
        self.run_id = ""
        self.chat_id = ""
        self.last_seq = 0
        """Highest sequence number of the current run; attach with it to resume."""
        self.plans: dict[str, list[agent_pb2.Task]] = {}
        """Latest tasks of each plan, by plan id."""
        self.tasks: dict[str, Task] = {}
        self.subagents: dict[str, Subagent] = {}
        self.end: agent_pb2.AgentDelta | None = None
        """Terminal event of the current run; None while it is live."""
        self.gates: dict[str, Gate] = {}
        """Open gates of the current run."""
        self.files: dict[str, agent_pb2.ArtifactPublish] = {}
        """Files published by the current run."""
        self.open_calls: dict[str, Block] = {}
        """Calls that a model is still writing."""
        self.client_calls: dict[str, Block] = {}
        """Calls of the run caller's functions that have no result yet."""
        self._blocks: dict[str, Block] = {}
        self._earlier_blocks: dict[str, Block] = {}
        """Blocks of earlier runs; no attempt.reset drops them."""

    @property
    def blocks(self) -> dict[str, Block]:
        """All blocks by id, in order of their start; do not change them."""
        return self._earlier_blocks | self._blocks if self._earlier_blocks else self._blocks

    @property
    def answer(self) -> str:
        """Answer of the current run: the text after its last call, without that of planner, sub-agents and tasks."""
        texts: list[str] = []
        for block in self._blocks.values():
            if block.scope == RUN and block.is_call:
                texts.clear()
            elif block.is_answer:
                texts += block.pieces
        return "".join(texts)

    def get_arguments(self, call_id: str) -> str:
        """Return a call's arguments as JSON; empty for an unknown call."""
        block = self.blocks.get(call_id)
        return block.arguments if block else ""

    def apply(self, delta: agent_pb2.AgentDelta) -> Changes:
        """Apply the next event and return its changes; unknown events change nothing."""
        if delta.seq > self.last_seq:
            self.last_seq = delta.seq
        match delta.WhichOneof("payload"):
            case "content_delta":
                return self._append(delta.seq, delta.content_delta.content_id, delta.content_delta.delta)
            case "reasoning_delta":
                return self._append(delta.seq, delta.reasoning_delta.reasoning_id, delta.reasoning_delta.delta)
            case "tool_args":
                return self._append(delta.seq, delta.tool_args.tool_id, delta.tool_args.delta)
            case "action_args":
                return self._append(delta.seq, delta.action_args.action_id, delta.action_args.delta)
            case "attempt_reset":
                return self._drop(delta.seq, find_scope(delta), delta.attempt_reset.from_seq)
            case None:
                return ()
            case name if name.startswith(("content_", "reasoning_")):
                return self._apply_text(name, delta)
            case name if name.startswith(("tool_", "action_")):
                return self._apply_call(name, delta)
            case name if name.startswith(("task_", "plan_", "subagent_")):
                self._apply_task(name, delta)
                return ()
            case name:
                return self._apply_run(name, delta)

    def _drop(self, seq: int, scope: Scope, from_seq: int) -> Changes:
        lost = [block for block in self._blocks.values() if block.scope == scope and block.seq > from_seq]
        for block in lost:
            del self._blocks[block.id]
            self.open_calls.pop(block.id, None)
            self.client_calls.pop(block.id, None)
        return (BlocksLost(seq, lost, scope),)

    def _apply_text(self, name: str, delta: agent_pb2.AgentDelta) -> Changes:
        match name:
            case "content_start":
                return (self._open_content(delta, delta.content_start),)
            case "reasoning_start":
                return (self._open_block(delta, "reasoning", delta.reasoning_start.reasoning_id),)
            case "content_end":
                return self._complete(delta.seq, delta.content_end.content_id)
            case "reasoning_end":
                return self._complete(delta.seq, delta.reasoning_end.reasoning_id)
            case "content_snapshot":
                start = self._open_content(delta, delta.content_snapshot)
                return self._fill_past(start, delta, delta.content_snapshot.text)
            case "reasoning_snapshot":
                past = delta.reasoning_snapshot
                start = self._open_block(delta, "reasoning", past.reasoning_id, is_past=True)
                return self._fill_past(start, delta, past.text)
            case _:
                return ()

    def _apply_call(self, name: str, delta: agent_pb2.AgentDelta) -> Changes:
        match name:
            case "tool_start":
                return (self._open_tool(delta, delta.tool_start),)
            case "tool_end":
                return self._complete(delta.seq, delta.tool_end.tool_id, delta.tool_end.tool_params)
            case "tool_result":
                result = delta.tool_result
                return self._add_result(result.tool_id, result.result, ok=result.ok)
            case "tool_snapshot":
                begun, past = self._open_tool(delta, delta.tool_snapshot), delta.tool_snapshot
                return self._fill_past(begun, delta, past.arguments, past.tool_params)
            case "action_start":
                start = delta.action_start
                return (self._open_action(delta, start.action_id, start.action_name),)
            case "action_end":
                return self._complete(delta.seq, delta.action_end.action_id)
            case "action_param":
                self._complete(delta.seq, delta.action_param.action_id, delta.action_param.param)
                return ()
            case "action_result":
                return self._add_result(delta.action_result.action_id, delta.action_result.result, ok=True)
            case "action_snapshot":
                past = delta.action_snapshot
                begun = self._open_action(delta, past.action_id, past.action_name, is_past=True)
                return self._fill_past(begun, delta, past.arguments)
            case _:
                return ()

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

    def _apply_run(self, name: str, delta: agent_pb2.AgentDelta) -> Changes:
        match name:
            case "gate_open":
                gate = Gate(delta.gate_open, find_scope(delta))
                self.gates[gate.open.gate_id] = gate
                return (GateOpened(gate),)
            case "gate_close":
                self.gates.pop(delta.gate_close.gate_id, None)
                return (GateClosed(delta.gate_close.gate_id),)
            case "artifact_publish" if len(self.files) < FILES_MAX:
                self.files[delta.artifact_publish.artifact_id] = delta.artifact_publish
                return (FilePublished(delta.artifact_publish),)
            case "request_query":
                self.chat_id = delta.request_query.chat_id or self.chat_id
            case "chat_start":
                self.chat_id = delta.chat_start.chat_id
            case "run_start":
                if delta.run_start.run_id != self.run_id:
                    self.run_id, self.chat_id = delta.run_start.run_id, delta.run_start.chat_id or self.chat_id
                    self.last_seq, self.end, self._earlier_blocks = delta.seq, None, self.blocks
                    self._blocks, self.open_calls, self.client_calls, self.gates, self.files = {}, {}, {}, {}, {}
                return (RunBegun(delta.run_start, delta.timestamp),)
            case _ if name in TERMINAL:
                self.end = delta
                return (RunEnded(delta),)
            case _:
                pass
        return ()

    def _open_block(
        self, delta: agent_pb2.AgentDelta, kind: BlockKind, block_id: str, *, is_past: bool = False
    ) -> BlockBegun:
        known = self._blocks.get(block_id)
        block = Block(kind, block_id, delta.seq, find_scope(delta), read_chars=known.read_chars if known else 0)
        self._blocks[block_id] = block
        return BlockBegun(delta.seq - is_past, block, known is not None)

    def _open_content(
        self, delta: agent_pb2.AgentDelta, opened: agent_pb2.ContentStart | agent_pb2.ContentSnapshot
    ) -> BlockBegun:
        is_past = isinstance(opened, agent_pb2.ContentSnapshot)
        start = self._open_block(delta, "content", opened.content_id, is_past=is_past)
        start.block.is_answer = opened.is_answer if opened.HasField("is_answer") else start.block.scope == RUN
        return start

    def _open_tool(self, delta: agent_pb2.AgentDelta, call: agent_pb2.ToolStart | agent_pb2.ToolSnapshot) -> BlockBegun:
        start = self._open_block(delta, "tool", call.tool_id, is_past=isinstance(call, agent_pb2.ToolSnapshot))
        block = self.open_calls[call.tool_id] = start.block
        block.name, block.tool_type, block.tool_api = call.tool_name, call.tool_type, call.tool_api
        if call.tool_api == CLIENT:
            self.client_calls[block.id] = block
        return start

    def _open_action(
        self, delta: agent_pb2.AgentDelta, action_id: str, name: str, *, is_past: bool = False
    ) -> BlockBegun:
        start = self._open_block(delta, "action", action_id, is_past=is_past)
        self.open_calls[action_id] = start.block
        start.block.name = name
        return start

    def _fill_past(self, start: BlockBegun, delta: agent_pb2.AgentDelta, text: str, params: str = "") -> Changes:
        block_id = start.block.id
        appended, ended = self._append(delta.seq - 1, block_id, text), self._complete(delta.seq, block_id, params)
        return (start, *appended, *ended)

    def _append(self, seq: int, block_id: str, text: str) -> Changes:
        if (block := self._blocks.get(block_id)) is None:
            return ()
        block.pieces.append(text)
        repeated = block.read_chars - block.size_chars
        block.size_chars += len(text)
        if repeated <= 0:
            block.read_chars = block.size_chars
            return (TextAdded(seq, block, text, text),)
        block.read_chars = max(block.read_chars, block.size_chars)
        return (TextAdded(seq, block, text, text[repeated:]),)

    def _complete(self, seq: int, block_id: str, params: str = "") -> Changes:
        self.open_calls.pop(block_id, None)
        if (block := self._blocks.get(block_id)) is None:
            return ()
        block.is_complete, block.params = True, params
        return (BlockEnded(seq, block),)

    def _add_result(self, block_id: str, result: str, *, ok: bool) -> Changes:
        self.client_calls.pop(block_id, None)
        if (block := self._blocks.get(block_id)) is None:
            return ()
        block.result, block.ok = result, ok
        return (CallAnswered(block),)


def find_scope(delta: agent_pb2.AgentDelta) -> Scope:
    """Return an event's scope; an event about a task or sub-agent is in that scope."""
    payload = getattr(delta, delta.WhichOneof("payload") or "", None)
    return getattr(payload, "subagent_id", delta.subagent_id), getattr(payload, "task_id", delta.task_id)


def fold_events(deltas: Iterable[agent_pb2.AgentDelta]) -> Fold:
    state = Fold()
    for delta in deltas:
        state.apply(delta)
    return state
