"""Prompts and overrides of each stage in an agent file."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, field_validator, model_validator

from headrace.errors import UnknownPlaceholder
from services.orchestrator.agents import prompts
from services.orchestrator.agents.definition.budget import Budget
from services.orchestrator.agents.definition.parts import (
    ModelConfig,
    Output,
    Part,
    Policy,
    Positive,
    ToolConfig,
    Verify,
    with_tool_policy,
)

Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]+$", max_length=64)]


class Section(Part):
    """One stage's prompt, and its overrides; a field left out is as the agent has it."""

    system_prompt: str = ""
    """The stage's system message, with placeholders. It may stand over several lines between triple double quotes."""

    examples: str = ""
    """Examples of good work, which stand behind the prompt where the agent answers a person; as a sub-agent it goes
    without them. They are taken as they are, without placeholders."""

    model_config_: ModelConfig | None = Field(default=None, alias="modelConfig")
    """Overrides the agent's field by field."""

    tool_config: ToolConfig | None = None
    """Replaces the agent's lists as a whole. An explicit null takes all ordinary tools from the stage; the plan's own
    tools stay. An empty object overrides nothing."""

    tool_policy: Policy | None = None
    """Overrides the agent's."""

    output: Output | None = None
    """Overrides the agent's."""

    verify: Verify | None = None
    """Overrides the agent's; only the stage that gives the answer is checked."""

    budget: Budget | None = None
    """Fields that are given override the agent's, for the whole run; of plan, execute and summary, as of custom and its
    stages, the last that gives a field wins."""

    @model_validator(mode="before")
    @classmethod
    def _accept_aliases(cls, given: Any) -> Any:
        return with_tool_policy(given)

    @field_validator("system_prompt")
    @classmethod
    def _check_placeholders(cls, prompt: str) -> str:
        try:
            prompts.check_placeholders(prompt)
        except UnknownPlaceholder as error:
            raise ValueError(error.message) from None
        return prompt

    @property
    def empties_tools(self) -> bool:
        """Whether toolConfig is an explicit null."""
        return "tool_config" in self.model_fields_set and self.tool_config is None


class React(Section):
    """The section of mode REACT."""

    max_steps: Positive | None = None
    """Turns with tools; then one call without tools gives the answer. Left out, budget.maxSteps, else 6."""

    parallel_tool_calls: bool = False
    """Whether the calls of one answer run at the same time. Otherwise the first runs, and each other gets a result that
    says it was not run."""


class Planning(Section):
    """The section of the stage that makes the plan."""

    deep_thinking: bool = False
    """Whether a draft, with reasoning and without tools, precedes the turn that makes the plan; it costs one more model
    call."""


class PlanExecute(Part):
    """The stages of mode PLAN_EXECUTE, and how the tasks of a plan are gone through."""

    strategy: Literal["SEQUENTIAL", "PARALLEL", "RECURSIVE"] = "SEQUENTIAL"
    """SEQUENTIAL does the tasks in order. PARALLEL does neighbours of one group at the same time, and asks the planner
    for more. RECURSIVE splits composite tasks, and restates what is left after each task."""

    max_steps: Positive | None = None
    """Turns with tools in one task, which must then say how it ended. Left out, budget.maxSteps, else 15."""

    max_rounds: Positive = 10
    """Rounds in which the planner of PARALLEL, shown all results, may add further tasks."""

    max_parallel: Positive = 8
    """Tasks of one group at the same time; only PARALLEL has groups."""

    plan: Planning
    """Makes the plan. Its tools are those of the plan."""

    execute: Section
    """Does each task, with the ordinary tools."""

    summary: Section | None = None
    """Writes the answer, in one turn without tools. Without a prompt of its own it has the execute section's."""


class Custom(Section):
    """The section of mode CUSTOM: a mode of the operator's own, and what its stages have in common."""

    mode: Name
    """Name of the mode: its file in the folder `modes` of the configuration, without `.py`."""

    params: dict[str, Any] = Field(default_factory=dict[str, Any])
    """Values for the mode's code, which says what they mean."""

    max_steps: Positive = 1000
    """Steps of the mode in all: what its code asks for. One more ends the run, or of a sub-agent its part, with
    BUDGET_EXCEEDED. (Turns with tools within one `ask` are budget.maxSteps, else 6.)"""

    stages: dict[Name, Section] = Field(default_factory=dict[Name, Section])
    """Further prompts, models and tools, by the name by which the mode's code begins a task with them. What one leaves
    out is as the section `custom` has it."""
