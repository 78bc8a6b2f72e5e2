"""Parses the request of POST /v1/responses."""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from dataclasses import replace

import msgspec

from headrace.errors import InvalidRequest, NotFound
from services.facade.openai_api.attachments.content import Content, read_content
from services.facade.openai_api.body import (
    Function,
    Part,
    ResponseFormat,
    ToolChoice,
    choose_tools,
    make_client_tools,
    parse_body,
    read_arguments,
    read_json_text,
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

ROLES = frozenset({"system", "developer", "user", "assistant"})

RESPONSE_PREFIX, CONVERSATION_PREFIX = "resp_", "conv_"


class _Item(msgspec.Struct):
    type: str | None = None
    role: str | None = None
    content: str | list[Part] | None = None
    call_id: str | None = None
    name: str | None = None
    arguments: msgspec.Raw = msgspec.Raw()
    input: str | None = None
    """Arguments of a custom tool, which are plain text."""

    action: msgspec.Raw = msgspec.Raw()
    """Arguments of OpenAI's shell."""

    output: msgspec.Raw = msgspec.Raw()


class _Conversation(msgspec.Struct):
    id: str


class _Tool(Function):
    type: str = "function"


class _Text(msgspec.Struct):
    format: ResponseFormat | None = None


class _Body(msgspec.Struct):
    input: str | list[_Item]
    model: str | None = None
    """Key of the agent; absent or empty for the chat's last agent or else the default."""

    instructions: str | None = None
    stream: bool | None = None
    background: bool | None = None
    tools: list[_Tool] | None = None
    tool_choice: str | ToolChoice | None = None
    parallel_tool_calls: bool | None = None
    text: _Text | None = None
    conversation: str | _Conversation | None = None
    previous_response_id: str | None = None
    metadata: dict[str, str] | None = None


def parse_response_request(body: bytes) -> AgentRequest:
    """Parse a request body; a bad one raises InvalidRequest. The caller resolves `previous_response_id`."""
    given = parse_body(body, _Body)
    output_format = read_output_format(given.text.format if given.text else None, "text.format")
    items = [_Item(role="user", content=given.input)] if isinstance(given.input, str) else given.input
    entries = join_calls(filter(None, (_parse_entry(item, f"input[{at}]") for at, item in enumerate(items))))
    if given.conversation and given.previous_response_id:
        raise InvalidRequest.of("conversation", "must not be given together with previous_response_id")
    if given.instructions:
        entries.insert(0, EarlierMessage("instructions", "system", given.instructions))
    chat_id = given.conversation.id if isinstance(given.conversation, _Conversation) else given.conversation or ""
    results = find_results(entries, "input")
    functions = make_client_tools((tool.type, tool) for tool in given.tools or ())
    tool_choice, tools = choose_tools(given.tool_choice, functions)
    return AgentRequest(
        model=given.model or "",
        conversation=make_conversation(entries, results, "input"),
        known=1 if given.instructions else 0,
        results=results,
        tools=tools,
        tool_choice=tool_choice,
        parallel_tool_calls=given.parallel_tool_calls,
        output_format=output_format,
        chat_id=read_chat_id(chat_id.removeprefix(CONVERSATION_PREFIX), "conversation"),
        stream=bool(given.stream),
        background=bool(given.background),
        previous_response_id=given.previous_response_id or "",
        metadata=given.metadata or {},
    )


def parse_response_id(response_id: str) -> str:
    """Return the run id of a response; NotFound for an id in another format."""
    try:
        return str(uuid.UUID(hex=response_id.removeprefix(RESPONSE_PREFIX)))
    except ValueError:
        raise NotFound(f"there is no response {response_id[:64]!r}") from None


def join_calls(entries: Iterable[EarlierMessage]) -> list[EarlierMessage]:
    """Merge the calls of one answer, which are separate items, into one message with the answer's text."""
    joined: list[EarlierMessage] = []
    for entry in entries:
        if entry.calls and joined and joined[-1].role == "assistant":
            joined[-1] = replace(joined[-1], calls=[*joined[-1].calls, *entry.calls])
        else:
            joined.append(entry)
    return joined


def _parse_entry(item: _Item, name: str) -> EarlierMessage | None:
    """Return an item's message; None for what is only for the program or for OpenAI, such as reasoning, references, and
    calls that OpenAI itself executes: those have no `call_id`.
    """
    kind, call_id = item.type or "message", item.call_id or ""
    if kind == "message" and item.role in ROLES:
        content = read_content(item.content, f"{name}.content")
        return EarlierMessage(name, item.role or "", content.text, attachments=content.attachments)
    if kind == "message":
        raise InvalidRequest.of(f"{name}.role", f"must be one of {', '.join(sorted(ROLES))}")
    if kind == "function_call_output" or (call_id and kind.endswith("_output")):
        content = _read_result(item.output, f"{name}.output")
        return EarlierMessage(name, "tool", content.text, call_id=call_id, attachments=content.attachments)
    if kind == "function_call" or (call_id and kind.endswith("_call")):
        arguments = read_arguments(item.arguments, item.input) or read_json_text(item.action)
        return EarlierMessage(name, "assistant", "", [EarlierCall(call_id, item.name or kind, arguments)])
    return None


def _read_result(output: msgspec.Raw, name: str) -> Content:
    """Read a result: text, a list of parts, or any other JSON, as that of OpenAI's shell."""
    try:
        parts = msgspec.json.decode(output, type=list[Part])
    except msgspec.DecodeError:  # also for an absent one, which is empty
        return Content(read_json_text(output))
    return read_content(parts, name)
