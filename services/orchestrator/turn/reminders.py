"""Reminders at the end of each request, never stored, so that the time and all that changes leaves a provider's prefix
cache intact.

A sub-agent gets no todos.
"""

from __future__ import annotations

from services.orchestrator.run.scope import Scope
from services.runtime.clock import now_utc


def make_reminders(scope: Scope) -> list[str]:
    attention = scope.attention.without_todos() if scope.depth else scope.attention
    texts = [f"Current time: {now_utc():%Y-%m-%d %H:%M} UTC", *attention.reminders()]
    if scope.agent.limits.tell_model:
        texts.append(_describe_budget(scope))
    return texts


def _describe_budget(scope: Scope) -> str:
    left = scope.run.spending.measure_left()
    parts = [
        f"{left.model_calls} model calls, this one included",
        f"{left.tool_calls} tool calls",
        f"{left.time_ms // 1000} s",
    ]
    if left.HasField("tokens"):
        parts.append(f"{left.tokens} tokens")
    if left.HasField("cost_usd"):
        parts.append(f"{left.cost_usd:.4f} US dollars")
    return f"Left of the budget: {', '.join(parts)}."
