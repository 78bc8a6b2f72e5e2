"""What an agent file says of the context: its recap, and how many messages stay in it."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from services.orchestrator.agents.definition.parts import Part, Positive


class Recap(Part):
    """Goal, insights and open tasks stand in place of old tool results of the run."""

    enabled: bool = False
    """Whether recap is on. Off, the other fields have no effect, and requests are as if recap did not exist."""

    active_prompt_max_tokens: Positive = 4000
    """Tokens that the agent's prompt, goal, insights and open tasks may take together. Over it the insights go first,
    then the middle of the text is cut. A prompt that alone is larger is a warning when the file is read."""

    insights_window_size: Positive = 5
    """How many insights are shown. Tool results stand as their insight so many at a time, once half as many later ones
    are there."""

    insights: Literal["preview", "llm"] = "preview"
    """Who writes the insight of a tool result: `preview` takes its first 100 characters, `llm` asks the agent's model
    once a turn, which counts as a model call."""

    max_recursion_depth: Positive | None = None
    """Another name for budget.maxDepth, which wins where both are given."""


class Memory(Part):
    """How much of the chat a model is shown."""

    recap: Recap = Recap()
    """Keeps long runs small; off unless enabled."""

    max_message_history: Annotated[int, Field(ge=10, le=100)] = 40
    """Messages of earlier runs that a model sees at most, within the last 20 runs (HEADRACE_MEMORY_CHAT_K). The current
    run and a summary do not count."""
