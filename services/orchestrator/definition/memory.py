"""What an agent file says of the context: its recap, and how many messages stay in it."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from services.orchestrator.definition.parts import Part, Positive


class Recap(Part):
    """Goal, insights and open tasks in place of old results; off, the rest of it has no effect."""

    enabled: bool = False
    active_prompt_max_tokens: Positive = 4000
    insights_window_size: Positive = 5
    insights: Literal["preview", "llm"] = "preview"
    max_recursion_depth: Positive | None = None
    """Another name for budget.maxDepth, which goes before."""


class Memory(Part):
    recap: Recap = Recap()
    max_message_history: Annotated[int, Field(ge=10, le=100)] = 40
