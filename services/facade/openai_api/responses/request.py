"""The request of POST /v1/responses."""

from __future__ import annotations

import uuid
from typing import Any

import msgspec

from headrace.errors import InvalidRequest, NotFound
from headrace.v1 import agent_pb2
from services.facade.openai_api.body import (
    Function,
    Part,
    ResponseFormat,
    check_format,
    make_client_tool,
    parse_body,
    read_text,
)
from services.facade.openai_api.request import AgentRequest, EarlierCall, EarlierMessage, build_message, find_results

ROLES = frozenset({"system", "developer", "user", "assistant"})

SKIPPED_ITEMS = frozenset({"reasoning", "item_reference"})

RESPONSE_PREFIX, CONVERSATION_PREFIX = "resp_", "conv_"


class _Item(msgspec.Struct):
    type: str = "message"
    role: str = ""
    content: str | list[Part] | None = None
    call_id: str = ""
    name: str = ""
    arguments: str = ""
    output: str | list[Part] | None = None


class _Conversation(msgspec.Struct):
    id: str


class _Tool(Function):
    type: str = ""


class _Text(msgspec.Struct):
    format: ResponseFormat | None = None


class _Body(msgspec.Struct):
    input: str | list[_Item]
    model: str = ""
    """The agent's key; empty for the chat's last agent, or else the default."""

    instructions: str | None = None
    stream: bool | None = None
    background: bool | None = None
    tools: list[_Tool] | None = None
    tool_choice: Any = None
    text: _Text | None = None
    conversation: str | _Conversation | None = None
    previous_response_id: str | None = None
    metadata: dict[str, str] | None = None


def parse_response_request(body: bytes) -> AgentRequest:
    """Parse a request body; the caller resolves `previous_response_id`. A bad body raises InvalidRequest."""
    given = parse_body(body, _Body)
    check_format(given.text.format if given.text else None, "text.format")
    items = [_Item(role="user", content=given.input)] if isinstance(given.input, str) else given.input
    entries = [_parse_entry(item, f"input[{at}]") for at, item in enumerate(items) if item.type not in SKIPPED_ITEMS]
    goes_on = bool(given.conversation or given.previous_response_id)
    if given.conversation and given.previous_response_id:
        raise InvalidRequest.of("conversation", "must not be given beside previous_response_id")
    if given.instructions and not goes_on:
        entries.insert(0, EarlierMessage("system", given.instructions))
    chat_id = given.conversation.id if isinstance(given.conversation, _Conversation) else given.conversation or ""
    results = find_results(entries, "input")
    return AgentRequest(
        model=given.model,
        message="" if results else build_message(entries, "input", is_new=not goes_on),
        results=results,
        tools=_parse_tools(given),
        chat_id=chat_id.removeprefix(CONVERSATION_PREFIX),
        stream=bool(given.stream),
        background=bool(given.background),
        previous_response_id=given.previous_response_id or "",
        metadata=given.metadata or {},
    )


def parse_response_id(response_id: str) -> str:
    """Return the run of a response; a foreign id raises NotFound."""
    try:
        return str(uuid.UUID(hex=response_id.removeprefix(RESPONSE_PREFIX)))
    except ValueError:
        raise NotFound(f"there is no response {response_id[:64]!r}") from None


def _parse_entry(item: _Item, name: str) -> EarlierMessage:
    match item.type:
        case "message" if item.role in ROLES:
            return EarlierMessage(item.role, read_text(item.content, f"{name}.content"))
        case "message":
            raise InvalidRequest.of(f"{name}.role", f"must be one of {', '.join(sorted(ROLES))}")
        case "function_call":
            return EarlierMessage("assistant", "", [EarlierCall(item.call_id, item.name, item.arguments)])
        case "function_call_output":
            return EarlierMessage("tool", read_text(item.output, f"{name}.output"), call_id=item.call_id)
        case _:
            raise InvalidRequest.of(f"{name}.type", "must be message, function_call or function_call_output")


def _parse_tools(given: _Body) -> list[agent_pb2.ClientTool]:
    if given.tool_choice == "none":
        return []
    for at, tool in enumerate(given.tools or ()):
        if tool.type != "function":
            raise InvalidRequest.of(f"tools[{at}].type", "must be function: the agent has its own tools")
    return [make_client_tool(tool, f"tools[{at}]") for at, tool in enumerate(given.tools or ())]
