"""Parses the request of POST /v1/chat/completions."""

from __future__ import annotations

import msgspec

from headrace.errors import InvalidRequest
from services.facade.openai_api.attachments.content import read_content
from services.facade.openai_api.body import (
    Function,
    Part,
    ResponseFormat,
    ToolChoice,
    choose_tools,
    make_client_tools,
    parse_body,
    read_arguments,
    read_output_format,
)
from services.facade.openai_api.request import (
    AgentRequest,
    EarlierCall,
    EarlierMessage,
    find_results,
    make_conversation,
    read_chat_id,
)

ROLES = frozenset({"system", "developer", "user", "assistant", "tool"})


class _FunctionCall(msgspec.Struct):
    name: str = ""
    arguments: msgspec.Raw = msgspec.Raw()
    input: str | None = None
    """Arguments of a custom tool, which are plain text."""


class _ToolCall(msgspec.Struct):
    id: str = ""
    function: _FunctionCall | None = None
    custom: _FunctionCall | None = None


class _Message(msgspec.Struct):
    role: str
    content: str | list[Part] | None = None
    tool_calls: list[_ToolCall] | None = None
    tool_call_id: str | None = None


class _Tool(msgspec.Struct):
    type: str = "function"
    function: Function = msgspec.field(default_factory=Function)


class _StreamOptions(msgspec.Struct):
    include_usage: bool | None = None


class _Body(msgspec.Struct):
    model: str
    messages: list[_Message]
    stream: bool | None = None
    stream_options: _StreamOptions | None = None
    tools: list[_Tool] | None = None
    tool_choice: str | ToolChoice | None = None
    parallel_tool_calls: bool | None = None
    n: int | None = None
    response_format: ResponseFormat | None = None
    metadata: dict[str, str] | None = None


def parse_chat_request(body: bytes) -> AgentRequest:
    """Parse a request body; a bad one raises InvalidRequest."""
    given = parse_body(body, _Body)
    if given.n not in (None, 1):
        raise InvalidRequest.of("n", "must be 1: an agent gives one answer")
    output_format = read_output_format(given.response_format, "response_format")
    entries = [_parse_entry(message, f"messages[{at}]") for at, message in enumerate(given.messages)]
    metadata = given.metadata or {}
    results = find_results(entries, "messages")
    functions = make_client_tools((tool.type, tool.function) for tool in given.tools or ())
    tool_choice, tools = choose_tools(given.tool_choice, functions)
    conversation = make_conversation(entries, results, "messages")
    return AgentRequest(
        model=given.model,
        conversation=conversation,
        known=len(conversation.history),
        results=results,
        tools=tools,
        tool_choice=tool_choice,
        parallel_tool_calls=given.parallel_tool_calls,
        output_format=output_format,
        chat_id=read_chat_id(metadata.get("chat_id", ""), "metadata.chat_id"),
        stream=bool(given.stream),
        include_usage=bool(given.stream_options and given.stream_options.include_usage),
        metadata=metadata,
    )


def _parse_entry(message: _Message, name: str) -> EarlierMessage:
    if message.role not in ROLES:
        raise InvalidRequest.of(f"{name}.role", f"must be one of {', '.join(sorted(ROLES))}")
    content = read_content(message.content, f"{name}.content")
    return EarlierMessage(
        name,
        message.role,
        content.text,
        [_read_call(call) for call in message.tool_calls or ()],
        message.tool_call_id or "",
        content.attachments,
    )


def _read_call(call: _ToolCall) -> EarlierCall:
    called = call.function or call.custom or _FunctionCall()
    return EarlierCall(call.id, called.name, read_arguments(called.arguments, called.input))
