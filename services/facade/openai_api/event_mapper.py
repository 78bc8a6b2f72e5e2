"""Maps a run's events to its text, reasoning and calls of the caller's functions.

The agent's own tools, plan and sub-agents are left out; what its planner says is reasoning. A function call is emitted
once the run waits for its result, so that the calls of one answer stay together.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from dataclasses import dataclass, field

from headrace.errors import Interrupted
from headrace.fold import find_scope
from headrace.run_states import State
from headrace.v1 import agent_pb2, common_pb2
from services.facade.openai_api.events import (
    BlockEnded,
    BlockKind,
    BlocksDropped,
    BlockStarted,
    FunctionCall,
    RunEnded,
    RunEvent,
    RunStarted,
    TextDelta,
)

TURN_QUIET_S = 0.25
"""Longer than a model pauses between two calls of an answer."""

CLIENT = "client"

_MODEL_EVENTS = frozenset(
    {
        *("reasoning_start", "reasoning_delta", "reasoning_snapshot"),
        *("content_start", "content_delta", "content_snapshot"),
        *("tool_start", "tool_args", "tool_end", "tool_snapshot"),
    }
)
"""What a model says, also as it is told later: behind a past call its result may come at once."""


async def map_events(deltas: AsyncIterator[agent_pb2.AgentDelta], answered: frozenset[str]) -> AsyncGenerator[RunEvent]:
    """Map a run's events; calls that are `answered`, by toolId, are left out.

    Raises:
        Interrupted: The events ended before the run.
    """
    pending = _PendingCalls(answered)
    seq = 0
    while True:
        try:
            # Nearly always no call is due, and a timeout takes longer than a delta.
            if (due_at := pending.due_at) is None:
                delta = await anext(deltas, None)
            else:
                async with asyncio.timeout_at(due_at):
                    delta = await anext(deltas, None)
        except TimeoutError:
            for call in pending.calls:
                yield FunctionCall(seq - 1, call.tool_id, call.name, call.whole)
            yield RunEnded(seq, "calls", common_pb2.Usage())
            return
        if delta is None:
            raise Interrupted("the run's stream ended before the run did")
        seq = delta.seq
        pending.apply_delta(delta)
        for event in map_delta(delta):
            yield event
            if isinstance(event, RunEnded):
                return


@dataclass(slots=True)
class _PendingCall:
    tool_id: str
    name: str
    seq: int
    scope: tuple[str, str]
    pieces: list[str] = field(default_factory=list[str])
    whole: str = ""
    """The complete arguments; empty while the model writes them."""


class _PendingCalls:
    """Calls of the caller's functions, due when the answer that holds them has ended.

    A call ends when the next one begins, the last one with its answer. So any open call of the answer, the agent's own
    too, says that the model may still ask for more.
    """

    def __init__(self, answered: frozenset[str]) -> None:
        self._answered = answered
        self._calls: dict[str, _PendingCall] = {}
        self._open: dict[str, tuple[tuple[str, str], int]] = {}
        """Scope and seq of each call that a model is writing, by its id."""
        self._quiet_since_s = 0.0

    @property
    def calls(self) -> list[_PendingCall]:
        return [*self._calls.values()]

    @property
    def due_at(self) -> float | None:
        """Loop time at which to emit the calls; None without calls or while a model writes one in their scopes."""
        if not self._calls:
            return None
        writing = {scope for scope, _ in self._open.values()}
        if any(call.scope in writing for call in self._calls.values()):
            return None
        return self._quiet_since_s + TURN_QUIET_S

    def apply_delta(self, delta: agent_pb2.AgentDelta) -> None:
        kind = delta.WhichOneof("payload")
        if kind in _MODEL_EVENTS:
            self._quiet_since_s = asyncio.get_running_loop().time()
        self._note_writing(kind, delta)
        match kind:
            case "tool_start" if delta.tool_start.tool_api == CLIENT:
                self._open_call(delta, delta.tool_start.tool_id, delta.tool_start.tool_name)
            case "tool_args" if call := self._calls.get(delta.tool_args.tool_id):
                call.pieces.append(delta.tool_args.delta)
            case "tool_end" if call := self._calls.get(delta.tool_end.tool_id):
                call.whole = delta.tool_end.tool_params or "".join(call.pieces) or "{}"
            case "tool_snapshot" if delta.tool_snapshot.tool_api == CLIENT:
                past = delta.tool_snapshot
                self._open_call(delta, past.tool_id, past.tool_name, past.tool_params or past.arguments or "{}")
            case "tool_result":
                self._calls.pop(delta.tool_result.tool_id, None)
            case "attempt_reset":
                # The run does not wait for calls that were lost.
                scope, from_seq = find_scope(delta), delta.attempt_reset.from_seq
                kept = (call for call in self.calls if call.scope != scope or call.seq <= from_seq)
                self._calls = {call.tool_id: call for call in kept}
                self._open = {id: at for id, at in self._open.items() if at[0] != scope or at[1] <= from_seq}
            case _:
                pass

    def _note_writing(self, kind: str | None, delta: agent_pb2.AgentDelta) -> None:
        match kind:
            case "tool_start":
                self._open[delta.tool_start.tool_id] = find_scope(delta), delta.seq
            case "action_start":
                self._open[delta.action_start.action_id] = find_scope(delta), delta.seq
            case "tool_end":
                self._open.pop(delta.tool_end.tool_id, None)
            case "action_end":
                self._open.pop(delta.action_end.action_id, None)
            case _:
                pass

    def _open_call(self, delta: agent_pb2.AgentDelta, tool_id: str, name: str, whole: str = "") -> None:
        if tool_id not in self._answered:
            self._calls[tool_id] = _PendingCall(tool_id, name, delta.seq, find_scope(delta), whole=whole)


def map_delta(delta: agent_pb2.AgentDelta) -> Iterator[RunEvent]:
    if delta.HasField("subagent_id") or delta.HasField("task_id"):
        return
    seq = delta.seq
    match delta.WhichOneof("payload"):
        case "content_delta":
            yield TextDelta(seq, delta.content_delta.content_id, delta.content_delta.delta)
        case "reasoning_delta":
            yield TextDelta(seq, delta.reasoning_delta.reasoning_id, delta.reasoning_delta.delta)
        case "content_start":
            start = delta.content_start
            yield BlockStarted(seq, _get_kind(start), start.content_id)
        case "reasoning_start":
            yield BlockStarted(seq, "reasoning", delta.reasoning_start.reasoning_id)
        case "content_end":
            yield BlockEnded(seq, delta.content_end.content_id)
        case "reasoning_end":
            yield BlockEnded(seq, delta.reasoning_end.reasoning_id)
        case "content_snapshot":
            past = delta.content_snapshot
            yield from _map_snapshot(seq, _get_kind(past), past.content_id, past.text)
        case "reasoning_snapshot":
            past = delta.reasoning_snapshot
            yield from _map_snapshot(seq, "reasoning", past.reasoning_id, past.text)
        case "run_start":
            start = delta.run_start
            yield RunStarted(seq, start.run_id, start.chat_id, start.agent_key, delta.timestamp // 1000)
        case "attempt_reset":
            yield BlocksDropped(seq, delta.attempt_reset.from_seq)
        case "run_complete":
            complete = delta.run_complete
            yield RunEnded(seq, complete.finish_reason, complete.usage, output=complete.output)
        case "run_error":
            yield RunEnded(seq, State.FAILED, delta.run_error.usage, delta.run_error.error)
        case "run_cancel":
            yield RunEnded(seq, State.CANCELLED, delta.run_cancel.usage)
        case _:
            pass


def _get_kind(block: agent_pb2.ContentStart | agent_pb2.ContentSnapshot) -> BlockKind:
    return "reasoning" if block.HasField("is_answer") and not block.is_answer else "text"


def _map_snapshot(seq: int, kind: BlockKind, block_id: str, text: str) -> Iterator[RunEvent]:
    """Map a snapshot. Only its end has its seq, so that a partial reader gets all of it again."""
    yield BlockStarted(seq - 1, kind, block_id)
    yield TextDelta(seq - 1, block_id, text)
    yield BlockEnded(seq, block_id)
