"""Parses the request of POST /agui/{agent}, AG-UI's RunAgentInput."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Any

import msgspec
import orjson

from headrace.errors import InvalidRequest
from headrace.v1 import agent_pb2
from services.facade.adapters.attachments.attachment import Attachment, decode_base64, decode_url, make_attachment
from services.facade.adapters.gate_answers import Answer, make_answer, parse_gate_ref
from services.facade.agui.frames import OURS
from services.facade.agui.segment import Cursor, Segment
from services.facade.openai_api.body import Function, make_client_tools, parse_body
from services.facade.openai_api.request import (
    Conversation,
    EarlierCall,
    EarlierMessage,
    ToolResult,
    find_results,
    list_results,
    split_conversation,
)
from services.runtime.auth import identity
from services.runtime.auth.access import find_keyed_chat
from services.runtime.randomness import new_uuid

THREADS = uuid.UUID("5f0c2f6e-8c3b-5c0e-9a51-2b7f7c0a4c11")
"""Namespace of chat ids for threads with ids other than UUIDs."""

NAME_CHARS_MAX = 256

BINARY = "binary"
"""A file's part before AG-UI 1.0; some programs send one with each newer part."""

MEDIA_PARTS = ("image", "audio", "video", "document", BINARY)

ROLES = frozenset({"developer", "system", "assistant", "user", "tool"})
"""Roles of messages sent to models; activities and reasoning are left out."""


class _Source(msgspec.Struct, rename="camel"):
    type: str
    value: str
    mime_type: str | None = None


class _Part(msgspec.Struct, rename="camel"):
    type: str
    text: str | None = None
    source: _Source | None = None
    metadata: Any = None
    mime_type: str | None = None
    """This and the fields below are those of BINARY."""

    data: str | None = None
    url: str | None = None
    filename: str | None = None


class _Function(msgspec.Struct):
    name: str
    arguments: str


class _Call(msgspec.Struct):
    id: str
    function: _Function


class _Message(msgspec.Struct, rename="camel"):
    id: str
    role: str
    content: Any = None
    tool_calls: list[_Call] | None = None
    tool_call_id: str | None = None
    subagent_run_id: str | None = None
    error: str | None = None


class _Tool(msgspec.Struct):
    name: str
    description: str | None = None
    parameters: msgspec.Raw = msgspec.Raw()


class _Context(msgspec.Struct):
    description: str
    value: str


class _Resume(msgspec.Struct, rename="camel"):
    interrupt_id: str
    status: str
    payload: Any = None


class _Body(msgspec.Struct, rename="camel"):
    thread_id: str
    messages: list[_Message]
    run_id: str = msgspec.field(default_factory=new_uuid)
    """Required by the protocol, but some programs leave it out; their request cannot be sent again."""

    tools: list[_Tool] | None = None
    context: list[_Context] | None = None
    forwarded_props: Any = None
    resume: list[_Resume] | None = None


class _Messages(msgspec.Struct):
    messages: list[dict[str, Any]]


@dataclass(frozen=True, slots=True)
class RunRequest:
    chat_id: str
    segment: Segment
    query: agent_pb2.QueryRequest | None
    """None when the request answers a waiting run."""

    conversation: Conversation
    answers: Sequence[Answer] = ()

    has_context: bool = False
    """Whether the query's history ends with a message that holds the frontend's current context."""

    def list_attachments(self, *, is_new: bool) -> Sequence[Attachment]:
        """Return the attachments of the query's own message; if the chat `is_new`, also those of earlier messages."""
        conversation = self.conversation if is_new else replace(self.conversation, history=[])
        return conversation.list_attachments()

    def make_query(self, *, is_new: bool) -> agent_pb2.QueryRequest:
        """Return the query; unless the chat `is_new`, without the earlier messages, which its log already has."""
        assert self.query is not None, "there is one, or the request has answers"
        query = agent_pb2.QueryRequest()
        query.CopyFrom(self.query)
        if not is_new:
            del query.history[: len(query.history) - self.has_context]
        return query


def parse_segment(body: bytes, cursor: Cursor | None) -> Segment:
    """Parse the request of a thread's reader; a bad one raises InvalidRequest.

    Messages that were interrupted halfway are left out, since the stream sends them again.
    """
    given, raw = _parse_input(body)
    is_open = cursor.open_ids if cursor else {}
    return Segment(given.thread_id, "", [one for one in raw if one["id"] not in is_open], cursor=cursor)


def _parse_input(body: bytes) -> tuple[_Body, list[dict[str, Any]]]:
    """Return a RunAgentInput and its messages as sent."""
    given = parse_body(body, _Body)
    for name, value in (("threadId", given.thread_id), ("runId", given.run_id)):
        if not 0 < len(value) <= NAME_CHARS_MAX:
            raise InvalidRequest.of(name, f"must have 1 to {NAME_CHARS_MAX} characters")
    return given, msgspec.json.decode(body, type=_Messages).messages


def parse_run_request(body: bytes, agent_key: str, cursor: Cursor | None) -> RunRequest:
    """Parse a run request; a bad one raises InvalidRequest."""
    given, raw = _parse_input(body)
    segment = Segment(given.thread_id, given.run_id, raw, cursor=cursor)
    chat_id, name = find_chat(given.thread_id)
    entries = [_read_message(message, f"messages[{at}]") for at, message in enumerate(given.messages)]
    entries = [entry for entry in entries if entry.role in ROLES]
    if given.resume:
        answers, seq = list[Answer](), 0
        for at, entry in enumerate(given.resume):
            if (gate := parse_gate_ref(entry.interrupt_id)) is None:
                raise InvalidRequest.of(f"resume[{at}].interruptId", "must be the id of an interrupt of this server")
            if entry.status not in ("resolved", "cancelled"):
                raise InvalidRequest.of(f"resume[{at}].status", "must be resolved or cancelled")
            is_refused = entry.status == "cancelled"
            answers.append(make_answer(gate, entry.payload, f"resume[{at}].payload", is_refused=is_refused))
            seq = max(seq, gate.last_seq)
        # The request may also carry results of functions from the same turn; a result sent earlier changes
        # nothing.
        run_id = answers[0].run_id
        answers += [_make_result(result) for result in list_results(entries) if result.call.run_id == run_id]
        return _make_answering(chat_id, segment, answers, seq)
    if results := find_results(entries, "messages"):
        answers = [_make_result(result) for result in results]
        return _make_answering(chat_id, segment, answers, min(result.call.last_seq for result in results))
    conversation = split_conversation(entries, "messages")
    query = _make_query(given, agent_key, chat_id, conversation)
    if name:
        query.chat_key = name
    return RunRequest(chat_id, segment, query, conversation, has_context=bool(given.context))


def find_chat(thread_id: str) -> tuple[str, str]:
    """Return the thread's chat id and chat name; the name is empty if the thread id is a UUID, which is then
    the chat id.
    """
    try:
        return str(uuid.UUID(thread_id)), ""
    except ValueError:
        name = f"ag-ui/{sha256(thread_id.encode()).hexdigest()}"
        return find_keyed_chat(identity.require_identity(), name), name


def find_older_chat_id(thread_id: str) -> str:
    """Return the id that a named thread's chat had before 2026-11-29, when the whole tenant shared it."""
    return str(uuid.uuid5(THREADS, f"{identity.current_tenant()}/{thread_id}"))


def _make_result(result: ToolResult) -> Answer:
    return Answer(result.call.run_id, result.call.tool_id, False, result.payload)


def _make_answering(chat_id: str, segment: Segment, answers: Sequence[Answer], seq: int) -> RunRequest:
    if len({answer.run_id for answer in answers}) > 1:
        raise InvalidRequest.of("messages", "must answer one run")
    answered = frozenset(answer.gate_id for answer in answers)
    segment = replace(segment, start_seq=max(seq, 1), answered=answered)
    return RunRequest(chat_id, segment, None, Conversation(), answers)


def _read_message(message: _Message, name: str) -> EarlierMessage:
    if message.role not in ROLES or message.subagent_run_id:
        return EarlierMessage(name, "", "")
    calls = [EarlierCall(call.id, call.function.name, call.function.arguments) for call in message.tool_calls or ()]
    text, attachments = _read_content(message.content, f"{name}.content", takes_media=message.role == "user")
    if message.role == "tool" and message.error:
        text = orjson.dumps({"error": message.error, "content": text}).decode()
    return EarlierMessage(name, message.role, text, calls, message.tool_call_id or "", attachments)


def _read_content(content: Any, name: str, *, takes_media: bool) -> tuple[str, list[Attachment]]:
    """Return the text, with each attachment's name in brackets, and the attachments."""
    if content is None or isinstance(content, str):
        return content or "", []
    try:
        parts = msgspec.convert(content, list[_Part])
    except msgspec.ValidationError as error:
        raise InvalidRequest.of(name, f"must be text or a list of parts: {error}") from None
    text, attachments = "", list[Attachment]()
    for at, part in enumerate(parts):
        if part.type == "text":
            text += part.text or ""
        elif part.type in MEDIA_PARTS and takes_media:
            attachment = _read_media(part, f"{name}[{at}]")
            if part.type == BINARY and attachment.data in [one.data for one in attachments]:
                continue
            attachments.append(attachment)
            text += ("\n" if text else "") + f"[{attachments[-1].name}]\n"
        else:
            kinds = f"text, {', '.join(MEDIA_PARTS)}" if takes_media else "text"
            raise InvalidRequest.of(f"{name}[{at}]", f"must be {kinds}, not {part.type[:32]!r}")
    return text.removesuffix("\n") if attachments else text, attachments


def _read_media(part: _Part, name: str) -> Attachment:
    known: dict[str, Any] = part.metadata if isinstance(part.metadata, dict) else {}
    source, place, file_name = part.source, f"{name}.source", known.get("filename")
    if part.type == BINARY:
        source = _Source("data" if part.data else "url", part.data or part.url or "", part.mime_type)
        place, file_name = name, part.filename
    if source is None or source.type not in ("data", "url"):
        kind = source.type[:32] if source else "nothing"
        raise InvalidRequest.of(place, f"must have data in base64, not {kind!r}")
    if source.type == "url":
        kind, data = decode_url(source.value, place)
    else:
        kind, data = "image/" if part.type == "image" else "", decode_base64(source.value, f"{place}.value")
    return make_attachment(name, file_name if isinstance(file_name, str) else "", source.mime_type or kind, data)


def _make_query(given: _Body, agent_key: str, chat_id: str, conversation: Conversation) -> agent_pb2.QueryRequest:
    history = [earlier.to_proto() for earlier in conversation.history]
    if given.context:
        text = "\n".join(f"{entry.description}: {entry.value}" for entry in given.context)
        history.append(agent_pb2.EarlierMessage(role="system", content=text))
    props: dict[str, Any] = given.forwarded_props if isinstance(given.forwarded_props, dict) else {}
    ours = props.get(OURS, {})
    if not isinstance(ours, dict):
        raise InvalidRequest.of(f"forwardedProps.{OURS}", "must be an object")
    params = {name: value for name, value in props.items() if name != OURS}
    request_id = given.run_id if len(given.run_id.encode()) <= 128 else str(uuid.uuid5(THREADS, given.run_id))
    return agent_pb2.QueryRequest(
        request_id=request_id,
        chat_id=chat_id,
        agent_key=agent_key,
        message=conversation.message,
        history=history,
        progress=[earlier.to_proto() for earlier in conversation.progress],
        params=msgspec.json.encode(params).decode() if params else None,  # orjson has no integers of more than 64 bits
        client_tools=make_client_tools(
            ("function", Function(tool.name, tool.description, tool.parameters)) for tool in given.tools or ()
        ).values(),
        on_disconnect=_read_word(ours, "onDisconnect"),
        when_busy=_read_word(ours, "whenBusy"),
    )


def _read_word(ours: dict[str, Any], name: str) -> str | None:
    value = ours.get(name)
    if value is not None and not isinstance(value, str):
        raise InvalidRequest.of(f"forwardedProps.{OURS}.{name}", "must be text")
    return value
