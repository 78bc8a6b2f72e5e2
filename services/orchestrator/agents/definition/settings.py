"""The settings in force for one stage: the agent's, overridden by the stage's section."""

from __future__ import annotations

from dataclasses import dataclass

from services.orchestrator.agents.definition.parts import ModelConfig


@dataclass(frozen=True, slots=True)
class StageSettings:
    stage: str

    system_prompt: str
    model: ModelConfig
    tools: tuple[str, ...]

    may_use_tools: bool
    """Whether the model may also see tools that the agent does not list."""

    policy: str

    output: str
    verify: str
    steps_max: int

    parallel_tool_calls: bool = False

    examples: str = ""
    """What stands behind the prompt where the agent is no sub-agent."""
