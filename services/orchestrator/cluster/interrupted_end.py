"""Ends a run that nobody goes on with, as its own process would have: what is open gets its end."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from google.protobuf.message import Message

from headrace.errors import Interrupted, to_failure
from headrace.v1 import agent_pb2, common_pb2, memory_pb2
from services.orchestrator.lifecycle.ending.finish import INTERRUPTED_RESULT
from services.orchestrator.lifecycle.ending.unreplayed import make_open_result, make_scope_end
from services.orchestrator.lifecycle.live_calls.stored_usage import count_usage
from services.orchestrator.run.events.kinds import KINDS
from services.orchestrator.run.replay.attempt_resets import CRASHED, ScopeReset, find_resets
from services.orchestrator.run.replay.replay import Recording
from services.orchestrator.tape.tape import TAKEN_OVER
from services.runtime.clock import now_ms
from services.runtime.randomness import new_uuid


def make_interrupted_end(
    run: memory_pb2.UnfinishedRun,
    recording: Recording,
    history: Sequence[agent_pb2.AgentDelta],
    generation: int,
    base_seq: int,
    failure: common_pb2.Failure | None = None,
    *,
    is_recorded: bool = False,
) -> memory_pb2.AppendRequest:
    """Make the append that ends a run, as interrupted unless its owner left another `failure`.

    Readers drop what the log has not, of the run and of each open sub-agent and task; calls without a result get one. A
    run that was to be recorded (`is_recorded`) has no recording: its owner had that.
    """
    error = Interrupted("the service stopped while the run was going; the chat is in order, ask again")
    end = memory_pb2.RunLine(state="failed", error=failure or to_failure(error), usage=count_usage(recording))
    if is_recorded:
        end.recording_problem = TAKEN_OVER
    lines = _EndLines(recording, base_seq)
    scopes = find_resets(run.run_id, recording, CRASHED, history)
    for scope in scopes:
        lines.add_event(scope.payload, scope)
    for scope in reversed(scopes):
        lines.add_results(scope)
        if (scope_end := make_scope_end(scope, end)) is not None:
            lines.add_event(scope_end, scope)
    end.events.first_seq = end.events.last_seq = lines.seq + 1
    return memory_pb2.AppendRequest(
        chat_id=run.chat_id,
        run_id=run.run_id,
        generation=generation,
        request_id=new_uuid(),
        lines=[*lines.lines, memory_pb2.LogLine(run=end)],
    )


class _EndLines:
    def __init__(self, recording: Recording, base_seq: int) -> None:
        self.lines: list[memory_pb2.LogLine] = []
        self.seq = base_seq
        self._recording = recording
        self._steps = recording.steps

    def add_event(self, payload: Message, scope: ScopeReset) -> None:
        self.seq += 1
        fields: Any = {KINDS[type(payload)]: payload}
        event = agent_pb2.AgentDelta(
            seq=self.seq, timestamp=now_ms(), subagent_id=scope.subagent_id, task_id=scope.task_id, **fields
        )
        self.lines.append(memory_pb2.LogLine(event=memory_pb2.EventLine(event=event, context_id=scope.context_id)))

    def add_results(self, scope: ScopeReset) -> None:
        recorded = self._recording.scope(scope.context_id)
        if not recorded.open_calls:
            return
        self._steps += 1
        step = memory_pb2.StepLine(
            stage=recorded.last_stage, seq=self._steps, task_id=scope.task_id, context_id=scope.context_id
        )
        step.events.first_seq = self.seq + 1
        for piece in recorded.open_calls:
            self.seq += 1
            result = make_open_result(piece, INTERRUPTED_RESULT)
            result.events.first_seq = result.events.last_seq = self.seq
            step.messages.append(result)
        step.events.last_seq = self.seq
        self.lines.append(memory_pb2.LogLine(step=step))
