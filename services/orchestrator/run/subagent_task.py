"""The task that a sub-agent is called for."""

from __future__ import annotations

from dataclasses import dataclass

from services.orchestrator.agents.definition import Definition


@dataclass(frozen=True, slots=True)
class SubagentTask:
    """A task for a sub-agent, as its caller's model has given it."""

    agent: Definition | None
    """The agent that does it; None: one like the caller."""

    task: str
    loops_max: int
