"""Who may answer a gate, and what has happened to it, for people."""

from __future__ import annotations

from collections.abc import Sequence

from headrace.v1 import agent_pb2


def describe_answerers(any_of: Sequence[str], *, not_requester: bool, count: int = 1) -> str:
    """Return such as `2 of role:finance or user:ada, not the requester`; empty where it is the requester alone."""
    if list(any_of) in ([], ["requester"]):
        return ""
    several = f"{count} of " if count > 1 else ""
    return several + " or ".join(any_of) + (", not the requester" if not_requester else "")


def describe_step(step: agent_pb2.GateStep) -> str:
    """Return such as `delegated by ada to role:finance: please look`."""
    by = f" by {step.by}{'' if step.credential else ' (identity unproven)'}" if step.by else ""
    decision = f" to {step.decision}" if step.decision else ""
    to = f" to {', '.join(step.to)}" if step.to else ""
    return f"{step.step.replace('_', ' ')}{decision}{by}{to}{f': {step.note}' if step.note else ''}"
