"""A request in the form that its provider accepts: parameters of the model, names of tools, ids of calls.

Names have letters, digits, `_` and `-`, at most 64 (https://platform.openai.com/docs/api-reference/chat/create;
Anthropic accepts 128 of the same characters); Gemini requires a letter or `_` first
(https://ai.google.dev/api/caching#FunctionDeclaration, 2026-11). OpenAI refuses ids of more than 40 characters,
Anthropic ids with other characters than these (2026-05); Mistral answers anything but nine letters and digits with 400
"Tool call id was … but must be a-z, A-Z, 0-9, with a length of 9." (https://github.com/nearai/ironclaw/issues/1241,
2026-03). An id that fits is kept. Others are replaced by their hash: a call and its result get the same id in each
request, and no state is needed.
"""

from __future__ import annotations

import hashlib
import re
import string
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from headrace.v1.llm_pb2 import ChatRequest, Message, ToolCall
from services.llm_gateway.fitting.provider_state import is_models_own
from services.llm_gateway.fitting.schemas import CLAUDE, GEMINI, KIMI, NO_PARAMETERS, NOVA, OPENAPI, fit_schema
from services.llm_gateway.fitting.turns import BLANK_LINE, fit_turns
from services.llm_gateway.providers.provider_file import Model, Provider
from services.runtime.tokens.model_table import known_facts

FREE_CHOICES = ("", "none", "auto")
"""Values of `tool_choice` that leave the model free; `required` and names of tools force a call."""

CHAT_COMPLETIONS = "openai"
"""The protocol of OpenAI's older API, to which its limits apply."""

VENDORS = {"anthropic": CLAUDE, "bedrock": CLAUDE, "gemini": GEMINI}
"""Vendors with rules of their own, by protocol; those of other protocols are known by the models' names."""

REFUSED_PICTURES = {GEMINI: frozenset({"image/gif"})}
"""Types of pictures that a vendor refuses (https://ai.google.dev/gemini-api/docs/image-understanding, 2026-11)."""

CHOICES = (*FREE_CHOICES, "required")
"""Values of `tool_choice` that are not names of tools."""

LENGTH_MAX = 64

_UNFIT = re.compile(r"[^A-Za-z0-9_-]")
_BEGIN = re.compile(r"[A-Za-z_]")
_HASH_LENGTH = 8

_PORTABLE = re.compile(r"[a-zA-Z0-9_-]{1,40}")

_CHARACTERS = string.ascii_letters + string.digits
_LENGTH = 9
_NINE_CHARACTERS = re.compile(f"[a-zA-Z0-9]{{{_LENGTH}}}")


def find_vendor(provider: Provider, model: str) -> str:
    """Return the vendor whose rules apply; empty for any other."""
    named = (name for name in (*VENDORS.values(), KIMI) if name in model.lower())
    return VENDORS.get(provider.protocol) or next(named, "")


def list_refused_pictures(provider: Provider, model: str) -> Collection[str]:
    """Return the types of pictures that must be converted."""
    return REFUSED_PICTURES.get(find_vendor(provider, model), frozenset())


def list_unsupported(provider: Provider, entry: Model, model: str) -> Collection[str]:
    """Return the unsupported parameters from the entry, or else from the built-in table."""
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
            # Many of these models reason unless reasoning is disabled.
            request.reasoning.enabled = False
            request.reasoning.ClearField("effort")
    forced = [tool for tool in request.tools if tool.name == request.tool_choice]
    if forced and "tool_choice_by_name" in unsupported:
        request.tool_choice = "required"
        del request.tools[:]
        request.tools.extend(forced)
    if request.HasField("reasoning"):
        is_refused = "tools_with_reasoning" in unsupported and bool(request.tools)
        if not request.reasoning.enabled:
            is_refused = "reasoning_off" in unsupported
        if is_refused or "reasoning" in unsupported:
            request.ClearField("reasoning")
    for field in ("temperature", "top_p"):
        if field in unsupported or (request.reasoning.enabled and f"{field}_with_reasoning" in unsupported):
            request.ClearField(field)
    if "parallel_tool_calls" in unsupported:
        request.ClearField("parallel_tool_calls")


@dataclass(frozen=True, slots=True)
class FittedRequest:
    request: ChatRequest

    tool_names: Mapping[str, str]
    """The tools' own names, by the replaced names in the request."""


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
    # A fallback model may have a smaller limit.
    is_fallback = (given.provider_key, given.model) != (provider.key, model)
    if is_fallback and 0 < entry.max_output < given.max_tokens:
        fitted.max_tokens = entry.max_output
    if given.tool_choice not in CHOICES:
        fitted.tool_choice = names.fit(given.tool_choice)
    vendor = find_vendor(provider, model)
    form = OPENAPI if (vendor, provider.protocol) == (GEMINI, CHAT_COMPLETIONS) else vendor
    form = NOVA if provider.protocol == "bedrock" and NOVA in model else form
    for tool in given.tools:
        parameters, lost = fit_schema(tool.parameters, form)
        description = BLANK_LINE.join(filter(None, (tool.description, lost)))
        fitted.tools.add(name=names.fit(tool.name), description=description, parameters=parameters)
    if vendor == CLAUDE and fitted.temperature > 1:
        fitted.temperature = 1.0  # the maximum of Claude and Bedrock
    if vendor == CLAUDE and provider.protocol != "anthropic" and not given.tools:
        _offer_called_tools(fitted, given.messages, names)
    leave_out_unsupported(fitted, list_unsupported(provider, entry, model))
    turns = fit_turns(
        given.messages,
        is_strict=provider.turn_order == "strict",
        has_users_ends=bool(vendor),
        results_hold_media=results_hold_media,
    )
    calls = _Calls((call for turn in turns for call in turn.tool_calls), names, provider, model)
    fitted.messages.extend(_fit_calls(turn, names, calls) for turn in turns)
    return FittedRequest(fitted, names.list_replaced())


def _offer_called_tools(fitted: ChatRequest, messages: Iterable[Message], names: ToolNames) -> None:
    """Offer the tools that were called before, without permission to call them: Bedrock, and LiteLLM before Claude,
    refuse calls in the conversation without tools (https://github.com/BerriAI/litellm/issues/24712, 2026-03)."""
    for name in dict.fromkeys(names.fit(call.name) for message in messages for call in message.tool_calls):
        fitted.tools.add(name=name, parameters=NO_PARAMETERS)
        fitted.tool_choice = "none"


class _Calls:
    """The calls of a conversation: the tools' names, and the ids in a request to the `maker` of its answer."""

    def __init__(self, calls: Iterable[ToolCall], names: ToolNames, provider: Provider, model: str) -> None:
        self.maker = provider.key, model
        self.names: dict[str, str] = {}
        self.ids: dict[str, str] = {}
        # Kimi was trained on ids such as functions.read_file:3, counted in the conversation; with others it soon writes
        # calls into its text (https://github.com/vllm-project/vllm/issues/29596, 2025-11).
        is_kimis = KIMI in model.lower() and (provider.protocol, provider.call_ids) == (CHAT_COMPLETIONS, "any")
        for number, call in enumerate(calls):
            self.names[call.id] = call.name
            kimis_id = f"functions.{names.fit(call.name)}:{number}"
            self.ids[call.id] = kimis_id if is_kimis else fit_call_id(call.id, provider)


def _fit_calls(message: Message, names: ToolNames, known: _Calls) -> Message:
    """Return the message with fitted names and ids; unchanged if they fit."""
    calls = [
        ToolCall(id=known.ids[call.id], name=names.fit(call.name), arguments=call.arguments)
        for call in message.tool_calls
    ]
    call_id = known.ids[message.tool_call_id] if message.role == "tool" else ""
    name = message.name or (known.names[message.tool_call_id] if message.role == "tool" else "")
    name = names.fit(name) if name else ""
    is_own = not message.provider_state or is_models_own(message.provider_state, *known.maker)
    if is_own and calls == [*message.tool_calls] and (call_id, name) == (message.tool_call_id, message.name):
        return message
    fitted = Message()
    fitted.CopyFrom(message)
    del fitted.tool_calls[:]
    fitted.tool_calls.extend(calls)
    if call_id:
        fitted.tool_call_id = call_id
    if name:
        fitted.name = name
    if not is_own:
        fitted.ClearField("provider_state")
    return fitted


class ToolNames:
    """Maps the names of tools, offered now or called before, to those in a request."""

    def __init__(self, offered: Iterable[str]) -> None:
        self._fitted: dict[str, str] = {}
        taken: set[str] = set()
        # A name that fits is kept, in whatever order the tools are offered.
        for name in sorted(offered, key=lambda name: fit_name(name) != name):
            fitted = fit_name(name)
            self._fitted[name] = fitted = fitted if fitted not in taken else _add_hash(fitted, name)
            taken.add(fitted)

    def fit(self, name: str) -> str:
        return self._fitted.get(name) or fit_name(name)

    def list_replaced(self) -> Mapping[str, str]:
        """Return the tools' own names, by the replaced names in the request."""
        return {fitted: name for name, fitted in self._fitted.items() if fitted != name}


def fit_name(name: str) -> str:
    fitted = _UNFIT.sub("_", name)
    fitted = fitted if _BEGIN.match(fitted) else f"_{fitted}"
    return fitted if len(fitted) <= LENGTH_MAX else _add_hash(fitted, name)


def _add_hash(fitted: str, name: str) -> str:
    digits = hashlib.sha256(name.encode()).hexdigest()[:_HASH_LENGTH]
    return f"{fitted[: LENGTH_MAX - _HASH_LENGTH - 1]}_{digits}"


def fit_call_id(call_id: str, provider: Provider) -> str:
    if provider.call_ids == "nine_characters":
        return make_nine_characters(call_id)
    return call_id if _PORTABLE.fullmatch(call_id) else f"call_{hashlib.sha256(call_id.encode()).hexdigest()[:32]}"


def make_nine_characters(call_id: str) -> str:
    """Return an id in Mistral's form, always the same for the same id."""
    if _NINE_CHARACTERS.fullmatch(call_id):
        return call_id
    number = int.from_bytes(hashlib.sha256(call_id.encode()).digest())
    characters: list[str] = []
    for _ in range(_LENGTH):
        number, at = divmod(number, len(_CHARACTERS))
        characters.append(_CHARACTERS[at])
    return "".join(characters)
