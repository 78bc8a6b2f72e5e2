"""A request of either API, whose conversation becomes one query.

The last message of the user is the query's; those before it are its history, unless a continued chat has them in its
log, and those behind it its progress.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

import orjson

from headrace.errors import InvalidRequest
from headrace.v1 import agent_pb2, common_pb2
from services.facade.faces import call_ids
from services.facade.faces.attachments.attachment import Attachment, check_number
from services.facade.faces.call_ids import CallId
from services.runtime.formats.json_form import JSON_DEPTH_MAX, measure_json_depth
from services.runtime.rpc.field_rules import is_uuid

INSTRUCTING = ("system", "developer")
"""Roles whose texts hold wherever they stand."""

_EARLIER_FIELD = re.compile(r"(?P<list>history|progress)\[(?P<at>\d+)\](?P<rest>.*)", re.DOTALL)
_CAPITAL = re.compile(r"[A-Z]")


@dataclass(frozen=True, slots=True)
class EarlierCall:
    id: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class EarlierMessage:
    name: str
    """The field that it is in, for errors."""

    role: str
    text: str
    calls: Sequence[EarlierCall] = ()

    call_id: str = ""
    attachments: Sequence[Attachment] = ()

    def to_proto(self) -> agent_pb2.EarlierMessage:
        return agent_pb2.EarlierMessage(
            role="system" if self.role == "developer" else self.role,
            content=self.text,
            tool_calls=[
                agent_pb2.EarlierCall(id=call.id, name=call.name, arguments=call.arguments) for call in self.calls
            ],
            tool_call_id=self.call_id or None,
        )


@dataclass(frozen=True, slots=True)
class Conversation:
    """A request's messages as a query has them."""

    message: str = ""
    """The query's; empty when the request has results for a run that waits."""

    attachments: Sequence[Attachment] = ()
    """Pictures, sounds and files of the query's message."""

    history: Sequence[EarlierMessage] = ()
    progress: Sequence[EarlierMessage] = ()

    def list_attachments(self) -> list[Attachment]:
        """Return the attachments of all messages; too many raise InvalidRequest."""
        attachments = [one for message in self.history for one in message.attachments]
        attachments += self.attachments
        attachments += [one for message in self.progress for one in message.attachments]
        check_number(attachments)
        return attachments

    def rename_field(self, error: InvalidRequest) -> InvalidRequest:
        """Return the error with the request's name of the query's field."""
        found = _EARLIER_FIELD.fullmatch(error.metadata.get("field", ""))
        if found is None:
            return error
        messages = self.history if found["list"] == "history" else self.progress
        rest = _CAPITAL.sub(lambda letter: f"_{letter[0].lower()}", found["rest"])
        return InvalidRequest.of(messages[int(found["at"])].name + rest, error.metadata.get("rule", ""))


@dataclass(frozen=True, slots=True)
class ToolResult:
    call: CallId
    payload: str
    """The result as JSON text."""


@dataclass(frozen=True, slots=True)
class AgentRequest:
    model: str
    """The agent's key."""

    conversation: Conversation = field(default_factory=Conversation)

    known: int = 0
    """How many of the messages before the query a chat that goes on has already, from the first one on."""

    references: Sequence[common_pb2.Reference] = ()
    """The conversation's attachments, once they are in the chat."""

    results: Sequence[ToolResult] = ()

    tools: Sequence[agent_pb2.ClientTool] = ()
    tool_choice: str = ""
    """The query's toolChoice; empty for the agent's own."""

    parallel_tool_calls: bool | None = None
    output_format: common_pb2.OutputFormat | None = None
    chat_id: str = ""
    """The chat to continue; empty for a new one."""

    stream: bool = False
    background: bool = False
    """Whether the run goes on when its caller leaves."""

    include_usage: bool = False
    """Whether a stream of chat completions ends with the usage."""

    previous_response_id: str = ""
    metadata: dict[str, str] = field(default_factory=dict[str, str])


def read_chat_id(chat_id: str, name: str) -> str:
    """Return the chat that the field `name` says; InvalidRequest, of that field, if it cannot be one's id."""
    if chat_id and not is_uuid(chat_id):
        raise InvalidRequest.of(name, "must be a UUID in lower case")
    return chat_id


def find_results(entries: Sequence[EarlierMessage], name: str) -> list[ToolResult]:
    """Return the results that end the conversation, for a run that waits; none when their calls are of other programs.

    `name` is the field with the messages.

    Raises:
        InvalidRequest: They belong to several runs, or calls of the same answer have none.
    """
    behind = _find_last_results(entries)
    results = list_results(entries)
    if not results:
        return []
    if len(results) < len(entries) - behind or len({result.call.run_id for result in results}) > 1:
        raise InvalidRequest.of(name, "must end with results of the calls of one answer")
    answered = {entry.call_id for entry in entries[behind:]}
    asked = entries[behind - 1].calls if behind else ()
    if missing := [call.id for call in asked if call.id not in answered]:
        raise InvalidRequest.of(name, f"must have a result for each tool call; {len(missing)} of them have none")
    return results


def list_results(entries: Sequence[EarlierMessage]) -> list[ToolResult]:
    """Return the results that end the conversation, of calls of runs here."""
    calls = [(call_ids.parse_call_id(entry.call_id), entry.text) for entry in entries[_find_last_results(entries) :]]
    return [ToolResult(call, _to_json(text)) for call, text in calls if call is not None]


def _find_last_results(entries: Sequence[EarlierMessage]) -> int:
    return next((at for at in range(len(entries), 0, -1) if entries[at - 1].role != "tool"), 0)


def find_query(entries: Sequence[EarlierMessage]) -> int:
    """Return the index of the user's last message, -1 without one."""
    return next((at for at in range(len(entries) - 1, -1, -1) if entries[at].role == "user"), -1)


def split_conversation(entries: Sequence[EarlierMessage], name: str) -> Conversation:
    """Split the messages at the user's last one.

    Raises:
        InvalidRequest: It does not end with the user's message, or with what was done about it.
    """
    spoken = [entry for entry in entries if entry.role not in INSTRUCTING]
    at = find_query(entries)
    if at < 0 or spoken[-1].role not in ("user", "tool"):
        raise InvalidRequest.of(name, "must end with a message of the user, or with results of tool calls behind one")
    last, behind = entries[at], entries[at + 1 :]
    if not last.text:
        raise InvalidRequest.of(last.name, "must have text, as the last message of the user")
    return Conversation(
        message=last.text,
        attachments=last.attachments,
        history=[*entries[:at], *(entry for entry in behind if entry.role in INSTRUCTING)],
        progress=[entry for entry in behind if entry.role not in INSTRUCTING],
    )


def _to_json(text: str) -> str:
    """Return JSON unchanged, and any other text as a JSON string."""
    try:
        value = orjson.loads(text)
    except orjson.JSONDecodeError:
        return orjson.dumps(text).decode()
    return text if measure_json_depth(value) <= JSON_DEPTH_MAX else orjson.dumps(text).decode()
