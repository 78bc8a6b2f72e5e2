"""The sections of an agent file that hold prompts: one for each stage of a mode."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, field_validator, model_validator

from headrace.errors import UnknownPlaceholder
from services.orchestrator import prompts
from services.orchestrator.definition.budget import Budget
from services.orchestrator.definition.parts import (
    ModelConfig,
    Output,
    Part,
    Policy,
    Positive,
    ToolConfig,
    Verify,
    with_tool_policy,
)


class Section(Part):
    """One stage's prompt and what it overrides; None: as the agent has it."""

    system_prompt: str = ""
    model_config_: ModelConfig | None = Field(default=None, alias="modelConfig")
    tool_config: ToolConfig | None = None
    tool_policy: Policy | None = None
    output: Output | None = None
    verify: Verify | None = None
    budget: Budget | None = None

    @model_validator(mode="before")
    @classmethod
    def _aliases(cls, given: Any) -> Any:
        return with_tool_policy(given)

    @field_validator("system_prompt")
    @classmethod
    def _placeholders(cls, prompt: str) -> str:
        try:
            prompts.check(prompt)
        except UnknownPlaceholder as error:
            raise ValueError(error.message) from None
        return prompt

    @property
    def empties_tools(self) -> bool:
        """Whether its toolConfig is an explicit null."""
        return "tool_config" in self.model_fields_set and self.tool_config is None


class React(Section):
    max_steps: Positive | None = None
    parallel_tool_calls: bool = False


class Planning(Section):
    deep_thinking: bool = False
    """Whether a draft, with reasoning and without tools, goes before the plan."""


class PlanExecute(Part):
    """The stages of PLAN_EXECUTE, and how the tasks of a plan are gone through."""

    strategy: Literal["SEQUENTIAL", "PARALLEL", "RECURSIVE"] = "SEQUENTIAL"
    max_steps: Positive | None = None
    """Work turns of one task."""

    max_rounds: Positive = 10
    """Feedback rounds of PARALLEL."""

    max_parallel: Positive = 8
    plan: Planning
    execute: Section
    summary: Section | None = None
    """None: the execute section serves."""
