"""What a model does not take is left out, in the way that keeps the most of what the caller wants."""

from __future__ import annotations

from typing import TYPE_CHECKING

from services.runtime.tokens.model_table import known_facts

if TYPE_CHECKING:
    from collections.abc import Collection

    from headrace.v1.llm_pb2 import ChatRequest
    from services.llm_gateway.providers.provider_file import Model, Provider

FREE_CHOICES = ("", "none", "auto")
"""Of `tool_choice`, beside `required` and the names of tools, which force a call."""

CHAT_COMPLETIONS = "openai"
"""The protocol to which OpenAI's limits of its older API belong."""


def list_unsupported(provider: Provider, entry: Model, model: str) -> Collection[str]:
    """Return what the entry says that the model does not take, or else the built-in table."""
    if entry.unsupported is not None:
        return entry.unsupported
    known = known_facts(model)
    found = frozenset[str]() if known is None else known.unsupported
    return found if provider.protocol == CHAT_COMPLETIONS else found - {"tools_with_reasoning"}


def leave_out_unsupported(request: ChatRequest, unsupported: Collection[str]) -> None:
    if not unsupported:
        return
    if request.tool_choice not in FREE_CHOICES:
        if "tool_choice" in unsupported:
            request.tool_choice = "auto"
        elif "tool_choice_with_reasoning" in unsupported:
            # Many of these models reason unless they are told not to.
            request.reasoning.enabled = False
            request.reasoning.ClearField("effort")
    forced = [tool for tool in request.tools if tool.name == request.tool_choice]
    if forced and "tool_choice_by_name" in unsupported:
        request.tool_choice = "required"
        del request.tools[:]
        request.tools.extend(forced)
    if _is_reasoning_unsupported(request, unsupported):
        request.ClearField("reasoning")
    for field in ("temperature", "top_p"):
        if field in unsupported or (request.reasoning.enabled and f"{field}_with_reasoning" in unsupported):
            request.ClearField(field)
    if "parallel_tool_calls" in unsupported:
        request.ClearField("parallel_tool_calls")


def _is_reasoning_unsupported(request: ChatRequest, unsupported: Collection[str]) -> bool:
    if not request.HasField("reasoning"):
        return False
    if not request.reasoning.enabled:
        return "reasoning" in unsupported or "reasoning_off" in unsupported
    return "reasoning" in unsupported or ("tools_with_reasoning" in unsupported and bool(request.tools))
