"""A task for a sub-agent."""

from __future__ import annotations

from dataclasses import dataclass

from services.orchestrator.agents.definition import Definition


@dataclass(frozen=True, slots=True)
class SubagentTask:
    agent: Definition | None
    """None for an agent like the caller."""

    task: str
    loops_max: int
