"""Maps a run's events to its text, its reasoning and calls of the caller's functions.

The agent's own tools, plan and sub-agents are left out; a planner's text counts as reasoning. A function call
is emitted once the run waits for its result, so that the calls of one answer stay together.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator

from headrace.errors import Interrupted
from headrace.run_states import State
from headrace.runs import parts
from headrace.runs.fold import Fold
from headrace.runs.parts import RUN, Block, BlockBegun, BlockEnded, BlocksLost, TextAdded
from headrace.v1 import agent_pb2, common_pb2
from services.facade.adapters.run_pipe import TURN_QUIET_S
from services.facade.openai_api.events import FunctionCall, RunEnded, RunEvent, RunStarted

TEXTS = ("content", "reasoning")

_MODEL_EVENTS = frozenset(
    {
        *("reasoning_start", "reasoning_delta", "reasoning_snapshot"),
        *("content_start", "content_delta", "content_snapshot"),
        *("tool_start", "tool_args", "tool_end", "tool_snapshot"),
    }
)
"""Output events of a model; in a replay, a past call's result may follow it immediately."""


async def map_events(deltas: AsyncIterator[agent_pb2.AgentDelta], answered: frozenset[str]) -> AsyncGenerator[RunEvent]:
    """Map a run's events; leave out the calls with toolIds in `answered`.

    Raises:
        Interrupted: The events ended before the run.
    """
    fold, now = Fold(), asyncio.get_running_loop().time
    seq, quiet_since_s = 0, now()
    while True:
        calls = find_due_calls(fold, answered) if fold.client_calls else ()
        try:
            # Nearly always no call is due, and a timeout costs more than a delta.
            if not calls:
                delta = await anext(deltas, None)
            else:
                async with asyncio.timeout_at(quiet_since_s + TURN_QUIET_S):
                    delta = await anext(deltas, None)
        except TimeoutError:
            for call in calls:
                yield FunctionCall(seq - 1, call.id, call.name, call.arguments or "{}")
            yield RunEnded(seq, "calls", common_pb2.Usage())
            return
        if delta is None:
            raise Interrupted("the run's stream ended before the run did")
        seq = delta.seq
        if delta.WhichOneof("payload") in _MODEL_EVENTS:
            quiet_since_s = now()
        for event in map_delta(fold, delta):
            yield event
            if isinstance(event, RunEnded):
                return


def find_due_calls(fold: Fold, answered: frozenset[str]) -> list[Block]:
    """Return the calls that the run waits for; none while a model may add further calls in their scopes.

    A call ends when the next one starts; the last one ends with the model's answer. An open call in a scope,
    even of the agent's own tools, therefore means that further calls may follow.
    """
    calls = [call for call in fold.client_calls.values() if call.id not in answered]
    writing = {call.scope for call in fold.open_calls.values()}
    return [] if any(call.scope in writing for call in calls) else calls


def map_delta(fold: Fold, delta: agent_pb2.AgentDelta) -> list[RunEvent]:
    """Return the caller-visible changes of a delta."""
    events: list[RunEvent] = []
    for change in fold.apply(delta):
        match change:
            case TextAdded(block=block) | BlockBegun(block=block) | BlockEnded(block=block):
                if block.scope == RUN and block.kind in TEXTS:
                    events.append(change)
            case BlocksLost(scope=scope) if scope == RUN:
                events.append(change)
            case parts.RunBegun(start=start):
                at_s = delta.timestamp // 1000
                events.append(RunStarted(delta.seq, start.run_id, start.chat_id, start.agent_key, at_s))
            case parts.RunEnded():
                events.append(_map_end(delta))
            case _:
                pass
    return events


def _map_end(delta: agent_pb2.AgentDelta) -> RunEnded:
    match delta.WhichOneof("payload"):
        case "run_error":
            return RunEnded(delta.seq, State.FAILED, delta.run_error.usage, delta.run_error.error)
        case "run_cancel":
            return RunEnded(delta.seq, State.CANCELLED, delta.run_cancel.usage)
        case _:
            end = delta.run_complete
            return RunEnded(delta.seq, end.finish_reason, end.usage, output=end.output)
