"""Ends the calls, tasks and sub-agents that are open in the log of a run that ends in the middle of its replay."""

from __future__ import annotations

from collections.abc import Iterator

from google.protobuf.message import Message

from headrace.v1 import agent_pb2, llm_pb2, memory_pb2
from services.orchestrator.run.replay.attempt_resets import ScopeReset, find_resets
from services.orchestrator.run.run import Run
from services.runtime.clock import now_ms


def close_unreplayed(run: Run, line: memory_pb2.RunLine, open_result: str) -> list[memory_pb2.LogLine]:
    """Publish the result of each call and the end of each scope that the replay has not come to; return their lines."""
    if not run.past.reason:
        return []
    scopes = find_resets(run.id, run.recording, run.past.reason, run.past.history)
    return [logged for scope in reversed(scopes) for logged in _close_scope(run, scope, line, open_result)]


def _close_scope(
    run: Run, scope: ScopeReset, line: memory_pb2.RunLine, open_result: str
) -> Iterator[memory_pb2.LogLine]:
    recorded = run.recording.scope(scope.context_id)
    if pieces := recorded.open_calls:
        messages = [make_open_result(piece, open_result) for piece in pieces]
        for piece, message in zip(pieces, messages, strict=True):
            event = run.feed.publish(
                _make_event(piece, open_result), subagent_id=scope.subagent_id, task_id=scope.task_id
            )
            message.events.first_seq = message.events.last_seq = event.seq
        step = run.log.step(recorded.last_stage, messages, run.feed.seq)
        if scope.context_id is not None:
            step.context_id = scope.context_id
        if scope.task_id is not None:
            step.task_id = scope.task_id
        yield memory_pb2.LogLine(step=step)
    end = make_scope_end(scope, line)
    if end is not None and not run.scopes.had(scope.context_id):
        ended = run.feed.publish(end, subagent_id=scope.subagent_id, task_id=scope.task_id)
        yield memory_pb2.LogLine(event=memory_pb2.EventLine(event=ended, context_id=scope.context_id))


def make_open_result(piece: memory_pb2.LogMessage, text: str) -> memory_pb2.LogMessage:
    """Make the result of a recorded call that did not come to one; the caller sets its events."""
    call = piece.message.tool_calls[0]
    result = memory_pb2.LogMessage(ts=now_ms(), ok=False)
    if piece.HasField("action_id"):
        result.action_id = piece.action_id
    else:
        result.tool_id = piece.tool_id
    result.message.CopyFrom(llm_pb2.Message(role="tool", name=call.name, tool_call_id=call.id))
    result.message.content.add(text=text)
    return result


def make_scope_end(scope: ScopeReset, line: memory_pb2.RunLine) -> Message | None:
    """Make the last event of a scope that ends with its run; None for the run's own."""
    is_cancelled = line.state == "cancelled"
    if scope.task_id is not None and is_cancelled:
        return agent_pb2.TaskCancel(task_id=scope.task_id)
    if scope.task_id is not None:
        return agent_pb2.TaskFail(task_id=scope.task_id, error=line.error)
    if scope.subagent_id is not None:
        summary = "cancelled" if is_cancelled else line.error.message
        return agent_pb2.SubagentEnd(subagent_id=scope.subagent_id, ok=False, summary=summary)
    return None


def _make_event(piece: memory_pb2.LogMessage, text: str) -> Message:
    if piece.HasField("action_id"):
        return agent_pb2.ActionResult(action_id=piece.action_id, result=text)
    return agent_pb2.ToolResult(tool_id=piece.tool_id, result=text, ok=False)
