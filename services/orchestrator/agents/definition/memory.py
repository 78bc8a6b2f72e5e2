"""An agent's memory settings: caps of the window, compaction and recap."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from services.orchestrator.agents.definition.parts import Part, Positive


class Recap(Part):
    """Puts a line each in the place of old tool results of a long run, where that costs less than it saves."""

    enabled: bool = False
    """Whether recap is on; otherwise the other fields have no effect."""

    active_prompt_max_tokens: Positive = 4000
    """Tokens that the agent's prompt, goal and open tasks may take together; over it the middle of the text goes. A
    prompt that alone is larger is logged as a warning."""

    insights_window_size: Positive = 5
    """Steps whose results are replaced at a time, at least; the first time is after seven steps or later. Results of
    less than 200 tokens stay, and those of the last step."""

    insights: Literal["preview", "llm"] = "preview"
    """`preview` takes the first 100 characters of a tool result as its insight; `llm` asks the agent's model once a
    turn, which counts as a model call."""

    max_recursion_depth: Positive | None = None
    """Another name for budget.maxDepth, which wins where both are given."""


class Summary(Part):
    """Who writes the summaries of compactions, and what they heed."""

    provider_key: str | None = None
    """Key of the provider of `model`. Left out, the agent's own."""

    model: str | None = None
    """Name of the model that writes summaries. Left out, the provider's summaryModel, else the agent's model."""

    instructions: Annotated[str, Field(max_length=16_384)] = ""
    """What each summary is to heed beside its nine sections, for example which figures it may not lose."""


class Memory(Part):
    """How much of the chat a model is shown. The model's window decides, in tokens; `maxRuns` and `maxMessageHistory`
    are caps below it."""

    recap: Recap = Recap()
    """Keeps long runs small; off unless enabled."""

    max_runs: Positive | None = None
    """Earlier runs that a model sees at most, beside a summary. What is past it is compacted between runs, half of them
    at a time. Left out, HEADRACE_MEMORY_CHAT_K (20)."""

    max_message_history: Annotated[int, Field(ge=10)] | None = None
    """Messages of earlier runs that a model sees at most, likewise. The current run and a summary do not count. Left
    out, HEADRACE_MEMORY_MESSAGE_HISTORY_MAX (no limit)."""

    older: Literal["summary", "drop"] = "summary"
    """What becomes of messages past a cap: `summary` keeps them until a summary stands for them; `drop` leaves them
    out, and a notice says which."""

    threshold: Annotated[float, Field(ge=0.1, le=1)] = 0.8
    """Share of the greatest request from which the context is compacted before its next turn."""

    kept_share: Annotated[float, Field(ge=0.05, le=0.9)] = 0.2
    """Share of the messages that stay beside a summary."""

    summary: Summary = Summary()
    """Who writes summaries, and what they heed."""

    facts: Literal["off", "tools", "recall"] = "off"
    """Whether the agent works with facts about the user from all chats: `tools` gives it `remember`, `recall` and
    `forget`; `recall` also shows it the facts that match the user's message, at the end of each request."""

    facts_tokens: Positive = 500
    """Tokens that the facts shown may take together, by our estimate of a token for three bytes."""

    extract: Literal["off", "after_run"] = "off"
    """`after_run` has the agent's model look for lasting facts in the user's message once a run is complete, with what
    is left of the run's budget. A fact counts only with words of the message as its proof."""

    clear_results: Annotated[int, Field(ge=0)] | None = None
    """Number of tool results that stay whole when the context nears its threshold; older ones are shortened before any
    summary is written. Left out, results are not shortened for their age."""
