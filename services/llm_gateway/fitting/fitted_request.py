"""A request as its provider takes it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace.v1.llm_pb2 import ChatRequest, Message, ToolCall, ToolSchema
from services.llm_gateway.fitting.call_ids import fit_call_id
from services.llm_gateway.fitting.schemas import fit_schema
from services.llm_gateway.fitting.tool_names import ToolNames
from services.llm_gateway.fitting.turns import BLANK_LINE, fit_turns
from services.llm_gateway.fitting.unsupported import FREE_CHOICES, leave_out_unsupported, list_unsupported

if TYPE_CHECKING:
    from collections.abc import Mapping

    from services.llm_gateway.providers.provider_file import Model, Provider

CHOICES = (*FREE_CHOICES, "required")
"""Of `tool_choice`, beside the names of tools."""


@dataclass(frozen=True, slots=True)
class FittedRequest:
    request: ChatRequest

    tool_names: Mapping[str, str]
    """The tools' own names by those in the request, where they differ."""


def fit_request(
    given: ChatRequest, provider: Provider, model: str, entry: Model, *, results_hold_media: bool
) -> FittedRequest:
    names = ToolNames(tool.name for tool in given.tools)
    fitted = ChatRequest()
    for field, value in given.ListFields():
        if field.name in ("messages", "tools"):
            continue
        if field.message_type is None:
            setattr(fitted, field.name, value)
        else:
            getattr(fitted, field.name).CopyFrom(value)
    fitted.provider_key, fitted.model = provider.key, model
    # A fallback's model may write less.
    is_fallback = (given.provider_key, given.model) != (provider.key, model)
    if is_fallback and 0 < entry.max_output < given.max_tokens:
        fitted.max_tokens = entry.max_output
    if given.tool_choice not in CHOICES:
        fitted.tool_choice = names.fit(given.tool_choice)
    fitted.tools.extend(_fit_tool(tool, names) for tool in given.tools)
    leave_out_unsupported(fitted, list_unsupported(provider, entry, model))
    turns = fit_turns(given.messages, is_strict=provider.turn_order == "strict", results_hold_media=results_hold_media)
    fitted.messages.extend(_fit_calls(turn, names, provider) for turn in turns)
    return FittedRequest(fitted, names.list_replaced())


def _fit_calls(message: Message, names: ToolNames, provider: Provider) -> Message:
    """Return the message with names and ids that fit; itself where they do."""
    calls = [
        ToolCall(id=fit_call_id(call.id, provider), name=names.fit(call.name), arguments=call.arguments)
        for call in message.tool_calls
    ]
    call_id = fit_call_id(message.tool_call_id, provider) if message.role == "tool" else ""
    name = names.fit(message.name) if message.name else ""
    if calls == [*message.tool_calls] and (call_id, name) == (message.tool_call_id, message.name):
        return message
    fitted = Message()
    fitted.CopyFrom(message)
    del fitted.tool_calls[:]
    fitted.tool_calls.extend(calls)
    if call_id:
        fitted.tool_call_id = call_id
    if name:
        fitted.name = name
    return fitted


def _fit_tool(tool: ToolSchema, names: ToolNames) -> ToolSchema:
    parameters, lost = fit_schema(tool.parameters)
    description = BLANK_LINE.join(filter(None, (tool.description, lost)))
    return ToolSchema(name=names.fit(tool.name), description=description, parameters=parameters)
