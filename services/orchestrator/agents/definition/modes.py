"""The modes of an agent.

A new mode is a record here, a function in services/orchestrator/modes with its row of the catalogue, and the section
that it reads.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

ModeName: TypeAlias = Literal["ONESHOT", "REACT", "PLAN_EXECUTE", "CUSTOM", "REMOTE"]


@dataclass(frozen=True, slots=True)
class Stage:
    name: str

    section: str
    """Path of the stage's section in an agent file."""

    uses_tools: bool = True
    """Whether the stage uses the ordinary tools; exactly one stage of a mode does."""

    gives_answer: bool = True
    """Whether the stage's last answer is the run's answer."""

    steps_max: int = 1
    """Turns with tools, unless section or budget set a limit; in `execute`, per task."""


@dataclass(frozen=True, slots=True)
class Mode:
    """How a run produces its answer; the limits are defaults for agents that set none."""

    name: ModeName
    stages: tuple[Stage, ...]

    model_calls: int

    tool_calls: int

    timeout_ms: int

    @property
    def working_stage(self) -> Stage:
        return next(stage for stage in self.stages if stage.uses_tools)


MODES: dict[str, Mode] = {
    mode.name: mode
    for mode in (
        Mode("ONESHOT", (Stage("oneshot", "plain"),), model_calls=3, tool_calls=5, timeout_ms=120_000),
        Mode("REACT", (Stage("react", "react", steps_max=6),), model_calls=15, tool_calls=20, timeout_ms=120_000),
        Mode(
            "PLAN_EXECUTE",
            (
                Stage("plan", "planExecute.plan", uses_tools=False, gives_answer=False),
                Stage("execute", "planExecute.execute", gives_answer=False, steps_max=15),
                Stage("summary", "planExecute.summary", uses_tools=False),
            ),
            model_calls=30,
            tool_calls=50,
            timeout_ms=300_000,
        ),
        Mode(
            "CUSTOM",
            (
                Stage("work", "custom", gives_answer=False, steps_max=6),
                Stage("custom", "custom", uses_tools=False),
            ),
            model_calls=30,
            tool_calls=50,
            timeout_ms=300_000,
        ),
        Mode("REMOTE", (Stage("remote", "remote"),), model_calls=15, tool_calls=20, timeout_ms=300_000),
    )
}

STAGES = {stage.name: stage for mode in MODES.values() for stage in mode.stages}
"""All stages by name; no two modes share one, so a run's log lines tell its mode."""
