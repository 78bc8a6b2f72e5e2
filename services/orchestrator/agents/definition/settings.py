"""What is in force for one stage of a run: the agent's own settings, overridden by those of the stage's section."""

from __future__ import annotations

from dataclasses import dataclass

from services.orchestrator.agents.definition.parts import ModelConfig


@dataclass(frozen=True, slots=True)
class StageSettings:
    """Made by `Definition.settings`; a scope works with one at a time."""

    stage: str
    """The word in the log: oneshot, react, plan, execute or summary."""

    system_prompt: str
    model: ModelConfig
    tools: tuple[str, ...]
    """Names of the tools that the agent lists for it."""

    may_use_tools: bool
    """Whether tools that it does not list may be shown to it too."""

    policy: str
    """DISALLOW, ALLOW or REQUIRE."""

    output: str
    verify: str
    steps_max: int
    """Turns with tools, of the run or of one task."""

    parallel_tool_calls: bool = False
