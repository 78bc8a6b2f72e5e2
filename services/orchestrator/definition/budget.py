"""Limits of a run as an agent file sets them, in both of the forms that are accepted."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field, model_validator

from services.orchestrator.definition.parts import Part, Positive


class Budget(Part):
    """Limits of a run; None: the mode's default, and for tokens and cost no limit."""

    max_model_calls: Positive | None = None
    max_tool_calls: Annotated[int, Field(ge=0)] | None = None
    max_steps: Positive | None = None
    timeout_ms: Positive | None = None
    max_tokens: Positive | None = None
    max_cost_usd: Annotated[float, Field(gt=0)] | None = None
    model_timeout_ms: Positive = 60_000
    tool_timeout_ms: Positive = 120_000
    max_depth: Positive | None = None
    """Of sub-agents, and of a recursive plan."""
    tell_model: bool = False
    """Whether each request says what is left."""

    @model_validator(mode="before")
    @classmethod
    def _from_nested(cls, given: Any) -> Any:
        """The other form: {runTimeoutMs, model: {maxCalls, timeoutMs}, tool: {…}}; retryCount has no effect here."""
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
