"""The wish for thoughts as Claude takes it, at Anthropic and at others.

https://platform.claude.com/docs/en/build-with-claude/extended-thinking (2026-11).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from services.llm_gateway.fitting.unsupported import FREE_CHOICES, list_unsupported
from services.llm_gateway.protocols.common.request_rules import THINKING_TOKENS

if TYPE_CHECKING:
    from headrace.v1 import llm_pb2
    from services.llm_gateway.providers.provider_file import Model, Provider

THINKING_TOKENS_MIN = 1_024
"""Smaller budgets are refused."""


def build_thinking(
    request: llm_pb2.ChatRequest, provider: Provider, model: Model, max_tokens: int, *, lacks_thoughts: bool
) -> dict[str, Any]:
    """Return the fields, none without a wish. With `lacks_thoughts`, results answer calls without thoughts, which is
    refused beside a budget: "Expected `thinking` or `redacted_thinking`, but found `tool_use`" (2025-08)."""
    reasoning = request.reasoning
    if not request.HasField("reasoning"):
        return {}
    # A forced tool and thinking exclude each other; the tool is what the caller insists on.
    enabled = reasoning.enabled and request.tool_choice in FREE_CHOICES
    unsupported = list_unsupported(provider, model, request.model)
    if provider.reasoning == "adaptive" or "reasoning_budget" in unsupported:
        if not enabled:
            return {} if "reasoning_off" in unsupported else {"thinking": {"type": "disabled"}}
        effort = {"output_config": {"effort": reasoning.effort.lower()}} if reasoning.effort else {}
        return {"thinking": {"type": "adaptive", "display": "summarized"}} | effort
    # Half of the limit is left for the answer.
    budget = min(THINKING_TOKENS[reasoning.effort or "MEDIUM"], max_tokens // 2)
    if not enabled or budget < THINKING_TOKENS_MIN or lacks_thoughts:
        return {}
    return {"thinking": {"type": "enabled", "budget_tokens": budget}}
