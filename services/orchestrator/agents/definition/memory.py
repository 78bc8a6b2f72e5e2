"""An agent's memory settings: recap, and the number of messages in the context."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from services.orchestrator.agents.definition.parts import Part, Positive


class Recap(Part):
    """Replaces old tool results of the run by goal, insights and open tasks."""

    enabled: bool = False
    """Whether recap is on; otherwise the other fields have no effect."""

    active_prompt_max_tokens: Positive = 4000
    """Tokens that the agent's prompt, goal, insights and open tasks may take together; over it the insights go first,
    then the middle of the text. A prompt that alone is larger is logged as a warning."""

    insights_window_size: Positive = 5
    """Number of insights shown. Tool results are replaced by their insights in batches of this size, once half as many
    later ones exist."""

    insights: Literal["preview", "llm"] = "preview"
    """`preview` takes the first 100 characters of a tool result as its insight; `llm` asks the agent's model once a
    turn, which counts as a model call."""

    max_recursion_depth: Positive | None = None
    """Another name for budget.maxDepth, which wins where both are given."""


class Memory(Part):
    """How much of the chat a model is shown."""

    recap: Recap = Recap()
    """Keeps long runs small; off unless enabled."""

    max_message_history: Annotated[int, Field(ge=10, le=100)] = 40
    """Messages of earlier runs that a model sees at most, within the last 20 runs (HEADRACE_MEMORY_CHAT_K). The current
    run and a summary do not count."""
