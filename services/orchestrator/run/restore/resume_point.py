"""Where this process continues an earlier owner's run, and which of that owner's events readers must drop."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from headrace.v1 import agent_pb2
from services.orchestrator.run.restore.restored_run import RestoredRun

Delta = agent_pb2.AgentDelta


@dataclass(frozen=True, slots=True)
class ResumePoint:
    generation: int = 0
    """0 for a run that begins here."""
    seq: int = 0
    history: Sequence[agent_pb2.AgentDelta] = ()
    restored: RestoredRun = field(default_factory=RestoredRun)
    reason: str = ""
    is_changed: bool = False
    traceparent: str = ""
    """Empty if the query's span was not recorded."""
    chat_owner: str = ""
    """The chat's owner; empty if not known yet."""


NEW = ResumePoint()

CRASHED = "INTERRUPTED"
HANDED_OVER = "HANDED_OVER"
"""Reasons of a reset: the previous owner died, or handed the run over."""
PARKED = "PARKED"
"""Not a reason for a reset: readers have everything."""


def count_crashes(restored: RestoredRun) -> int:
    """Count the owners that the run has lost; resets of its open sub-agents and tasks are not counted."""
    return sum(
        event.attempt_reset.reason == CRASHED
        for event in restored.events
        if event.HasField("attempt_reset") and not (event.subagent_id or event.task_id)
    )


@dataclass(frozen=True, slots=True)
class ScopeReset:
    payload: agent_pb2.AttemptReset
    context_id: str | None = None
    subagent_id: str | None = None
    task_id: str | None = None


def find_resets(run_id: str, restored: RestoredRun, reason: str, history: Iterable[Delta]) -> list[ScopeReset]:
    """Return the resets, each with the seq after which readers drop events: the run's, then those of open tasks and
    sub-agents, outer ones first."""
    lasts = [event.seq for event in history if event.HasField("run_start")]
    lasts += [restored.scope(None).last_seq]
    lasts += [message.events.last_seq for message in restored.messages()]
    found = [ScopeReset(agent_pb2.AttemptReset(run_id=run_id, from_seq=max(lasts), reason=reason))]
    for started in _open_scopes(restored.events):
        context_id = ".".join(filter(None, (started.subagent_id, f"task-{started.task_id}" if started.task_id else "")))
        from_seq = restored.scope(context_id).last_seq or started.seq
        payload = agent_pb2.AttemptReset(run_id=run_id, from_seq=from_seq, reason=reason)
        found.append(ScopeReset(payload, context_id, started.subagent_id or None, started.task_id or None))
    return found


def _open_scopes(events: Iterable[Delta]) -> list[Delta]:
    found: dict[tuple[str, str], Delta] = {}
    for event in events:
        match event.WhichOneof("payload"):
            case "task_start":
                key = (event.subagent_id, event.task_start.task_id)
                found[key] = Delta(seq=event.seq, subagent_id=key[0], task_id=key[1])
            case "task_complete" | "task_cancel" | "task_fail" as kind:
                found.pop((event.subagent_id, getattr(event, kind).task_id), None)
            case "subagent_start":
                key = (event.subagent_start.subagent_id, "")
                found[key] = Delta(seq=event.seq, subagent_id=key[0])
            case "subagent_end":
                gone = event.subagent_end.subagent_id
                found = {key: value for key, value in found.items() if key[0] != gone}
            case _:
                pass
    return list(found.values())
