"""What a scope's model is to know beside what is said. Memory tells it what is new, once, and keeps that.

A sub-agent gets no todos.
"""

from __future__ import annotations

from headrace.v1 import memory_pb2
from services.orchestrator.agents import prompts
from services.orchestrator.run.attention import MENTIONS
from services.orchestrator.run.scope import Scope
from services.runtime.clock import now_utc

OF_RUN = ("time", *MENTIONS)
"""Keys of what belongs to a query, which is told once in its run."""


def make_reminders(scope: Scope) -> list[memory_pb2.Reminder]:
    attention = scope.attention.without_todos() if scope.depth else scope.attention
    texts = {"time": f"Current time: {now_utc():%Y-%m-%d %H:%M} UTC", **attention.describe()}
    if scope.agent.limits.tell_model:
        texts["budget"] = _describe_budget(scope)
    return [memory_pb2.Reminder(key=key, text=text) for key, text in texts.items()]


def make_asides(scope: Scope) -> list[str]:
    """Make what the model is told with each request, and no log keeps: notes, and the draft that it is to check."""
    draft = scope.attention.draft
    check = prompts.fill_placeholders(prompts.load_text("verify"), {"draft": draft}) if draft else ""
    return [text for text in (scope.attention.describe_notes(), check) if text]


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
