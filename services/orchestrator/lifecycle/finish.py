"""The end of a run: its last lines, then exactly one terminal event, whatever fails.

It also closes open scopes and calls in the log if a run ends during its replay or no process takes it over.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Any, TypeAlias

import structlog
from google.protobuf.message import Message

from headrace.errors import HeadraceError, Interrupted, KeyUnavailable, LogDamaged, to_failure
from headrace.run_states import State
from headrace.v1 import agent_pb2, common_pb2, llm_pb2, memory_pb2
from services.orchestrator import metrics, tracing
from services.orchestrator.lifecycle import leases
from services.orchestrator.lifecycle.execute import INTERNAL
from services.orchestrator.lifecycle.live_calls.run_list import count_usage
from services.orchestrator.lifecycle.recording import keep_recording
from services.orchestrator.peers.recorder import TAKEN_OVER
from services.orchestrator.peers.stubs import Peers
from services.orchestrator.run.control.state import Steer
from services.orchestrator.run.events.feed import KINDS
from services.orchestrator.run.log import retry_commit
from services.orchestrator.run.restore.restored_run import RestoredRun
from services.orchestrator.run.restore.resume_point import CRASHED, ScopeReset, find_resets
from services.orchestrator.run.run import Run
from services.runtime.clock import now_ms
from services.runtime.randomness import new_uuid

log = structlog.get_logger()


def close_unrestored(run: Run, line: memory_pb2.RunLine, open_result: str) -> list[memory_pb2.LogLine]:
    """Publish a result for each call, and the end of each scope, that the replay has not reached; return their
    lines."""
    if not run.past.reason:
        return []
    scopes = find_resets(run.id, run.restored, run.past.reason, run.past.history)
    return [logged for scope in reversed(scopes) for logged in _close_scope(run, scope, line, open_result)]


def _close_scope(
    run: Run, scope: ScopeReset, line: memory_pb2.RunLine, open_result: str
) -> Iterator[memory_pb2.LogLine]:
    recorded = run.restored.scope(scope.context_id)
    if pieces := recorded.open_calls:
        messages = [make_open_result(piece, open_result) for piece in pieces]
        for piece, message in zip(pieces, messages, strict=True):
            result = agent_pb2.ToolResult(tool_id=piece.tool_id, result=open_result, ok=False)
            if piece.HasField("action_id"):
                result = agent_pb2.ActionResult(action_id=piece.action_id, result=open_result)
            event = run.feed.publish(result, subagent_id=scope.subagent_id, task_id=scope.task_id)
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
    """Create the result of a recorded call that never got one; the caller sets its events."""
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
    """Create the last event of a scope that ends with its run; None for the run's own scope."""
    is_cancelled = line.state == State.CANCELLED
    if scope.task_id is not None and is_cancelled:
        return agent_pb2.TaskCancel(task_id=scope.task_id)
    if scope.task_id is not None:
        return agent_pb2.TaskFail(task_id=scope.task_id, error=line.error)
    if scope.subagent_id is not None:
        summary = "cancelled" if is_cancelled else line.error.message
        return agent_pb2.SubagentEnd(subagent_id=scope.subagent_id, ok=False, summary=summary)
    return None


def make_interrupted_end(
    run: memory_pb2.UnfinishedRun,
    restored: RestoredRun,
    history: Sequence[agent_pb2.AgentDelta],
    generation: int,
    base_seq: int,
    failure: common_pb2.Failure | None = None,
    *,
    is_recorded: bool = False,
) -> memory_pb2.AppendRequest:
    """Create the append that ends a run, as interrupted unless its owner left another `failure`.

    Readers discard everything missing in the log, of the run and of each open sub-agent and task; calls without a
    result get one. With `is_recorded`, the end states that the recording is lost, because only the owner had it.
    """
    error = Interrupted("the service stopped while the run was going; the chat is in order, ask again")
    end = memory_pb2.RunLine(state="failed", error=failure or to_failure(error), usage=count_usage(restored))
    if is_recorded:
        end.recording_problem = TAKEN_OVER
    lines = _EndLines(restored, base_seq)
    scopes = find_resets(run.run_id, restored, CRASHED, history)
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
    def __init__(self, restored: RestoredRun, base_seq: int) -> None:
        self.lines: list[memory_pb2.LogLine] = []
        self.seq = base_seq
        self._restored = restored
        self._steps = restored.steps

    def add_event(self, payload: Message, scope: ScopeReset) -> None:
        self.seq += 1
        fields: Any = {KINDS[type(payload)]: payload}
        event = agent_pb2.AgentDelta(
            seq=self.seq, timestamp=now_ms(), subagent_id=scope.subagent_id, task_id=scope.task_id, **fields
        )
        self.lines.append(memory_pb2.LogLine(event=memory_pb2.EventLine(event=event, context_id=scope.context_id)))

    def add_results(self, scope: ScopeReset) -> None:
        recorded = self._restored.scope(scope.context_id)
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


CANCELLED_RESULT = '{"ok":false,"error":"cancelled"}'
INTERRUPTED_RESULT = '{"ok":false,"error":"interrupted"}'

HAND_OVER_S = 3.0
"""Maximum time to hand over a run; it fits within the process's stop time."""

AskNext: TypeAlias = Callable[[Run, Steer], Awaitable[None]]

NO_ROOM_FOR_AN_END = frozenset({LogDamaged.reason, KeyUnavailable.reason})
"""Errors of memory with which a run's log accepts no end of any kind."""


async def finish(run: Run, line: memory_pb2.RunLine, ask_next: AskNext) -> common_pb2.Failure | None:
    """End the run; return the failure to store as its end if the log refused this one, else None."""
    unheard = run.steering.close()
    run.spending.catch_up()
    line.usage.CopyFrom(run.usage)
    open_result = CANCELLED_RESULT if line.state == State.CANCELLED else INTERRUPTED_RESULT
    lines = run.close_scopes(line, open_result, close_unrestored(run, line, open_result))
    await keep_recording(run, line, make_end(run, line))
    run.keep_end(line, lines)
    try:
        failure = await _commit_end(run, unheard, ask_next)
    except asyncio.CancelledError:
        run.feed.cut()  # the process ends and memory does not answer
        raise
    if failure is not None:
        # The log has no end, so the run has not ended: its next owner ends it again, or stores the failure as its end
        # if these lines are never accepted.
        run.feed.cut()
        is_open = failure.retriable or run.log.is_lost or failure.code in NO_ROOM_FOR_AN_END
        return None if is_open else failure
    metrics.ENDED.labels(line.state, line.error.code).inc()
    tracing.mark_run_end(run, line)
    run.feed.release_all()
    run.state.end(State(line.state))
    run.main.publish(make_end(run, line))
    log.info(
        "run ended",
        run_id=run.id,
        chat_id=run.chat_id,
        agent_key=run.agent.key,
        state=line.state,
        error=line.error.code or None,
        seq=run.feed.seq,
        ms=now_ms() - run.state.created_at,
        model_calls=line.usage.model_calls,
        tool_calls=line.usage.tool_calls,
        input_tokens=line.usage.input_tokens,
        output_tokens=line.usage.output_tokens,
    )
    return None


async def hand_over(run: Run, peers: Peers) -> None:
    try:
        if not run.log.is_lost:
            async with asyncio.timeout(HAND_OVER_S):
                await run.flush()
                await leases.release(run, peers)
    except (HeadraceError, TimeoutError) as error:
        # Its lease runs out, then.
        log.warning("run not handed over", run_id=run.id, reason=getattr(error, "reason", "TIMEOUT"))
    except Exception:
        # The supervisor of a run: a bug in one must leave the others alone.
        log.exception("run not handed over", run_id=run.id)
    finally:
        run.feed.cut()
    log.info("run left to another owner", run_id=run.id, seq=run.feed.seq)


async def _commit_end(run: Run, unheard: list[Steer], ask_next: AskNext) -> common_pb2.Failure | None:
    """Ask the unheard messages and commit the last lines; return the failure if that is not possible."""

    async def commit() -> None:
        while unheard:
            await ask_next(run, unheard[0])
            del unheard[0]
        await run.flush()

    def note(error: HeadraceError) -> None:
        log.warning("last lines not committed", run_id=run.id, reason=error.reason)

    try:
        await retry_commit(commit, lambda error: error.retriable, note)
    except HeadraceError as error:
        note(error)
        return to_failure(error)
    except Exception:
        # The supervisor again: memory's bug must not end all other runs.
        log.exception("last lines not committed", run_id=run.id)
        return INTERNAL
    return None


def make_end(run: Run, line: memory_pb2.RunLine) -> agent_pb2.RunComplete | agent_pb2.RunCancel | agent_pb2.RunError:
    if line.state == State.COMPLETED:
        output = line.output or None
        return agent_pb2.RunComplete(run_id=run.id, finish_reason=line.finish_reason, usage=line.usage, output=output)
    if line.state == State.CANCELLED:
        return agent_pb2.RunCancel(run_id=run.id, usage=line.usage)
    return agent_pb2.RunError(run_id=run.id, error=line.error, usage=line.usage)
