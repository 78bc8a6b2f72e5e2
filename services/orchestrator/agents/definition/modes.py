"""The modes of an agent: their stages, the sections of the file that configure them, and their default limits.

A new mode is a record here, a function in services/orchestrator/modes with its row of the catalogue there,
and the section that it reads (sections.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

ModeName: TypeAlias = Literal["ONESHOT", "REACT", "PLAN_EXECUTE"]


@dataclass(frozen=True, slots=True)
class Stage:
    """A part of a mode with settings of its own."""

    name: str
    """The word in the log."""

    section: str
    """The path of its section in an agent file."""

    uses_tools: bool = True
    """Whether it uses the ordinary tools; exactly one stage of a mode does."""

    gives_answer: bool = True
    """Whether its last answer is the run's."""

    steps_max: int = 1
    """Turns with tools where neither section nor budget sets them; of one task in `execute`."""


@dataclass(frozen=True, slots=True)
class Mode:
    """How a run comes to its answer."""

    name: ModeName
    stages: tuple[Stage, ...]
    """In order; a run begins with the first."""

    model_calls: int
    """Limit of model calls where the agent sets none."""

    tool_calls: int
    """Limit of tool calls where the agent sets none."""

    timeout_ms: int
    """Limit of a run's time where the agent sets none."""

    @property
    def working_stage(self) -> Stage:
        """The stage that uses the ordinary tools."""
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
    )
}

STAGES = {stage.name: stage for mode in MODES.values() for stage in mode.stages}
"""All stages by the word in the log; no two modes share one, so a run's lines tell its mode."""
