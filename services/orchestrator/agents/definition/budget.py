"""Limits of a run, in both forms that an agent file may have them."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from services.orchestrator.agents.definition.parts import Part, Positive


class Budget(Part):
    """Limits of a run, its sub-agents, retries, checks and compactions included."""

    max_model_calls: Positive | None = None
    """Model calls. Left out, 3 for ONESHOT, 15 for REACT, 30 for PLAN_EXECUTE. When only these are spent, the run gets
    one more call for its answer and ends with finishReason budget."""

    max_tool_calls: Annotated[int, Field(ge=0)] | None = None
    """Tool calls. Left out, 5 for ONESHOT, 20 for REACT, 50 for PLAN_EXECUTE. A call over the limit is not run, the
    answer is asked for, and the run ends with finishReason budget."""

    max_tool_calls_per_answer: Positive = 128
    """Tool calls of one answer. Those beyond it are left out of the answer, and the model is told how many."""

    max_steps: Positive | None = None
    """Turns with tools, of the run for REACT, of each task for PLAN_EXECUTE; a section's maxSteps wins over it. Left
    out, 6 for REACT and 15 for PLAN_EXECUTE."""

    max_repeats: Annotated[int, Field(ge=2, le=100)] = 3
    """Times in a row that a model may make the same call, get the same error or say the same 80 characters or more; two
    calls in turn with the same results may come once less. At the limit it is told, and once more ends its work with
    finishReason stuck."""

    timeout_ms: Positive | None = None
    """Time of the run in milliseconds, without waits in the chat's queue and for people. Left out, 120,000, and 300,000
    for PLAN_EXECUTE. Over it the run ends with BUDGET_EXCEEDED."""

    max_tokens: Positive | None = None
    """Input and output tokens of all model calls together. Left out, no limit."""

    max_cost_usd: Annotated[float, Field(gt=0)] | None = None
    """Cost of all model calls in US dollars, by the prices of providers.json, sub-agents, tools and compactions
    included. A call is made only when its greatest cost is still there: its input and `max_tokens`, or the model's
    maxOutput, at the dearest price of the model and its provider's fallbacks. Others' calls under way are waited for;
    then max_tokens is lowered to what is left, and below 256 tokens the run ends with BUDGET_EXCEEDED. Left out, no
    limit."""

    unknown_price: Literal["REFUSE", "MAX_TOKENS"] = "REFUSE"
    """With maxCostUsd, for a call whose price is not known because the model or one of its fallbacks has none in
    providers.json: REFUSE fails with PRICE_UNKNOWN, MAX_TOKENS makes it within maxTokens, which must be set,
    while maxCostUsd is not spent, and one at a time if the model's calls turn out to cost something."""

    model_timeout_ms: Positive = 60_000
    """Time in milliseconds that a model may be silent: before its first delta, and between two. Over it the run fails
    with STREAM_STALLED. How long an answer takes is limited by `timeoutMs` alone."""

    tool_timeout_ms: Positive = 120_000
    """Time of one backend tool call in milliseconds. Frontend tools wait as their own definition says."""

    max_depth: Positive | None = None
    """Depth to which sub-agents may call sub-agents and a RECURSIVE plan may split tasks; the agent of the run counts.
    Left out, 5."""

    tell_model: bool = False
    """Whether each request ends with a line that says what is left of the budget."""

    @model_validator(mode="before")
    @classmethod
    def _from_nested(cls, given: Any) -> Any:
        """Accept the nested form {runTimeoutMs, model: {maxCalls, timeoutMs}, tool: {…}}; retryCount has no effect."""
        if not isinstance(given, dict):
            return given
        flat = dict(given)
        if "runTimeoutMs" in flat:
            flat["timeoutMs"] = flat.pop("runTimeoutMs")
        for kind in ("model", "tool"):
            nested = flat.pop(kind, None) or {}
            if not isinstance(nested, dict):
                raise ValueError(f"{kind}: must be an object")
            nested = dict(nested)
            nested.pop("retryCount", None)
            renamed = {f"max{kind.title()}Calls": "maxCalls", f"{kind}TimeoutMs": "timeoutMs"}
            flat |= {name: nested.pop(old) for name, old in renamed.items() if old in nested}
            flat |= {f"{kind}.{name}": value for name, value in nested.items()}
        return flat
