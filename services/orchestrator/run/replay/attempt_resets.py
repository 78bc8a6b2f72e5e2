"""The first events of a run's new owner: which part of the events was lost with the owner before.

One attempt.reset is the run's own; each task and sub-agent that has begun and not ended has one in its envelope.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from headrace.v1 import agent_pb2
from services.orchestrator.run.replay.replay import Recording

Delta = agent_pb2.AgentDelta

CRASHED = "INTERRUPTED"
HANDED_OVER = "HANDED_OVER"
"""Reasons: the owner before died with the run, or gave it away whole."""


def crashes(recording: Recording) -> int:
    """Count the owners that took the run over from a dead one."""
    return sum(reset.reason == CRASHED for reset in recording.told("attempt_reset"))


@dataclass(frozen=True, slots=True)
class ScopeReset:
    """The reset of one scope, and the ids of that scope; None where it has none."""

    payload: agent_pb2.AttemptReset
    context_id: str | None = None
    subagent_id: str | None = None
    task_id: str | None = None


def find_resets(run_id: str, recording: Recording, reason: str, known_seq: int) -> list[ScopeReset]:
    """Find the resets of the run and of each task and sub-agent that has begun and not ended: the seq after which
    readers drop events. The run's own events begin with `known_seq` at least."""
    lasts = [recording.scope(None).last_seq, known_seq]
    lasts += [message.events.last_seq for message in recording.messages()]
    found = [ScopeReset(agent_pb2.AttemptReset(run_id=run_id, from_seq=max(lasts), reason=reason))]
    for started in _open_scopes(recording.events):
        context_id = ".".join(filter(None, (started.subagent_id, f"task-{started.task_id}" if started.task_id else "")))
        from_seq = recording.scope(context_id).last_seq or started.seq
        payload = agent_pb2.AttemptReset(run_id=run_id, from_seq=from_seq, reason=reason)
        found.append(ScopeReset(payload, context_id, started.subagent_id or None, started.task_id or None))
    return found


def _open_scopes(events: Iterable[Delta]) -> list[Delta]:
    """An envelope for each scope that has begun and not ended, with the seq of its beginning."""
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
