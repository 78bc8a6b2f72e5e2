"""The request of POST /agui/{agent}: AG-UI's RunAgentInput."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import msgspec
import orjson

from headrace.errors import InvalidRequest
from headrace.v1 import agent_pb2
from services.facade.agui.cursor import Cursor
from services.facade.agui.frames import OURS
from services.facade.agui.segment import Segment
from services.facade.agui.waits import APPROVAL, InterruptId, parse_interrupt_id
from services.facade.openai_api.body import Function, make_client_tool, parse_body
from services.facade.openai_api.request import (
    Conversation,
    EarlierCall,
    EarlierMessage,
    find_results,
    split_conversation,
)
from services.runtime.auth import identity

THREADS = uuid.UUID("5f0c2f6e-8c3b-5c0e-9a51-2b7f7c0a4c11")
"""Namespace of chats whose threads have a name that is no UUID."""

NAME_CHARS_MAX = 256

ROLES = frozenset({"developer", "system", "assistant", "user", "tool"})
"""Roles of messages that models see; activities and reasoning are left out."""


class _Part(msgspec.Struct):
    type: str
    text: str = ""


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
    tool_call_id: str = ""
    subagent_run_id: str = ""
    error: str = ""


class _Tool(msgspec.Struct):
    name: str
    description: str = ""
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
    run_id: str
    messages: list[_Message]
    tools: list[_Tool] | None = None
    context: list[_Context] | None = None
    forwarded_props: Any = None
    resume: list[_Resume] | None = None


class _Messages(msgspec.Struct):
    messages: list[dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Answer:
    """What a person or the frontend says to a run that waits."""

    run_id: str
    gate_id: str
    is_approval: bool
    payload: str
    """JSON text."""


@dataclass(frozen=True, slots=True)
class RunRequest:
    chat_id: str
    segment: Segment
    query: agent_pb2.QueryRequest | None
    """None when the request answers a run that waits."""

    conversation: Conversation
    answers: Sequence[Answer] = ()

    def forget_history(self) -> RunRequest:
        """Return the request for a chat that goes on: its log has what was said."""
        if self.query is None:
            return self
        query = agent_pb2.QueryRequest()
        query.CopyFrom(self.query)
        kept = [earlier for earlier in query.history if earlier.role == "system"][-1:] if query.history else []
        del query.history[:]
        query.history.extend(kept)
        return replace(self, query=query)


def parse_run_request(body: bytes, agent_key: str, cursor: Cursor | None) -> RunRequest:
    """Parse a request; a bad one raises InvalidRequest."""
    given = parse_body(body, _Body)
    for name, value in (("threadId", given.thread_id), ("runId", given.run_id)):
        if not 0 < len(value) <= NAME_CHARS_MAX:
            raise InvalidRequest.of(name, f"must have 1 to {NAME_CHARS_MAX} characters")
    raw = msgspec.json.decode(body, type=_Messages).messages
    segment = Segment(given.thread_id, given.run_id, raw, cursor=cursor)
    chat_id = find_chat_id(given.thread_id)
    if given.resume:
        ids = [_parse_interrupt(entry, at) for at, entry in enumerate(given.resume)]
        answers = [
            _read_resume(entry, gate, at) for at, (entry, gate) in enumerate(zip(given.resume, ids, strict=True))
        ]
        return _make_answering(chat_id, segment, answers, max(id.last_seq for id in ids))
    entries = [_read_message(message, f"messages[{at}]") for at, message in enumerate(given.messages)]
    entries = [entry for entry in entries if entry.role in ROLES]
    if results := find_results(entries, "messages"):
        answers = [Answer(result.call.run_id, result.call.tool_id, False, result.payload) for result in results]
        return _make_answering(chat_id, segment, answers, min(result.call.last_seq for result in results))
    conversation = split_conversation(entries, "messages", is_new=True)
    query = _make_query(given, agent_key, chat_id, conversation)
    return RunRequest(chat_id, segment, query, conversation)


def find_chat_id(thread_id: str) -> str:
    """Return the thread's chat: the thread itself where it is a UUID, else one of its tenant."""
    try:
        return str(uuid.UUID(thread_id))
    except ValueError:
        return str(uuid.uuid5(THREADS, f"{identity.current_tenant()}/{thread_id}"))


def _make_answering(chat_id: str, segment: Segment, answers: Sequence[Answer], seq: int) -> RunRequest:
    if len({answer.run_id for answer in answers}) > 1:
        raise InvalidRequest.of("messages", "must answer one run")
    answered = frozenset(answer.gate_id for answer in answers)
    segment = replace(segment, start_seq=max(seq, 1), answered=answered)
    return RunRequest(chat_id, segment, None, Conversation(), answers)


def _parse_interrupt(entry: _Resume, at: int) -> InterruptId:
    found = parse_interrupt_id(entry.interrupt_id)
    if found is None:
        raise InvalidRequest.of(f"resume[{at}].interruptId", "must be the id of an interrupt of this server")
    return found


def _read_resume(entry: _Resume, gate: InterruptId, at: int) -> Answer:
    name = f"resume[{at}]"
    if entry.status not in ("resolved", "cancelled"):
        raise InvalidRequest.of(f"{name}.status", "must be resolved or cancelled")
    payload: Any = entry.payload
    if gate.is_approval:
        payload = _read_decision(entry, name)
    elif entry.status == "cancelled":
        payload = {"cancelled": True}
    return Answer(gate.run_id, gate.gate_id, gate.is_approval, orjson.dumps(payload).decode())


def _read_decision(entry: _Resume, name: str) -> dict[str, Any]:
    """Return an approval's payload: what was sent, or of {"approved": …} and true or false the decision."""
    given = entry.payload
    if entry.status == "cancelled":
        return {"decision": "reject"}
    if isinstance(given, dict) and "decision" not in given and isinstance(given.get("approved"), bool):
        given = given["approved"]
    if isinstance(given, bool):
        return {"decision": "approve" if given else "reject"}
    if not isinstance(given, dict):
        raise InvalidRequest.of(f"{name}.payload", f"must be the answer to an {APPROVAL}, as its responseSchema says")
    return given


def _read_message(message: _Message, name: str) -> EarlierMessage:
    if message.role not in ROLES or message.subagent_run_id:
        return EarlierMessage(name, "", "")
    calls = [EarlierCall(call.id, call.function.name, call.function.arguments) for call in message.tool_calls or ()]
    text = _read_text(message.content, f"{name}.content")
    if message.role == "tool" and message.error:
        text = orjson.dumps({"error": message.error, "content": text}).decode()
    return EarlierMessage(name, message.role, text, calls, message.tool_call_id)


def _read_text(content: Any, name: str) -> str:
    if content is None or isinstance(content, str):
        return content or ""
    parts = msgspec.convert(content, list[_Part]) if isinstance(content, list) else []
    for at, part in enumerate(parts):
        if part.type != "text":
            raise InvalidRequest.of(f"{name}[{at}]", "must be text; upload files by POST /api/upload")
    return "".join(part.text for part in parts)


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
        params=orjson.dumps(params).decode() if params else None,
        client_tools=[
            make_client_tool(Function(tool.name, tool.description, tool.parameters), f"tools[{at}]")
            for at, tool in enumerate(given.tools or ())
        ],
        on_disconnect=_read_word(ours, "onDisconnect"),
        when_busy=_read_word(ours, "whenBusy"),
    )


def _read_word(ours: dict[str, Any], name: str) -> str | None:
    value = ours.get(name)
    if value is not None and not isinstance(value, str):
        raise InvalidRequest.of(f"forwardedProps.{OURS}.{name}", "must be text")
    return value
