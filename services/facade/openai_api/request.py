"""A request of either API, with its conversation as one query.

The user's last message is the query's message. Earlier messages are its history, unless a continued chat
already has them in its log; later ones are its progress.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

import orjson

from headrace.errors import InvalidRequest
from headrace.v1 import agent_pb2, common_pb2
from services.facade.adapters import call_ids
from services.facade.adapters.attachments.attachment import Attachment, check_number
from services.facade.adapters.call_ids import CallId
from services.runtime.formats.json_form import JSON_DEPTH_MAX, measure_json_depth
from services.runtime.rpc.field_rules import is_uuid

INSTRUCTING = ("system", "developer")
"""Roles of instructions, which apply at any position."""

_EARLIER_FIELD = re.compile(r"(?P<list>history|progress)\[(?P<at>\d+)\](?P<rest>.*)", re.DOTALL)
_TOOL_FIELD = re.compile(r"clientTools\[(?P<at>\d+)\](?P<rest>.*)", re.DOTALL)
_CAPITAL = re.compile(r"[A-Z]")


@dataclass(frozen=True, slots=True)
class EarlierCall:
    id: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class EarlierMessage:
    name: str
    """Path of the message in the request, for errors."""

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
    """A request's messages in the form of a query."""

    message: str = ""
    """Message of the query; empty if the request has results for a waiting run."""

    attachments: Sequence[Attachment] = ()
    """Images, audio and files of the query's message, or of the results for a waiting run."""

    history: Sequence[EarlierMessage] = ()
    progress: Sequence[EarlierMessage] = ()

    def list_attachments(self) -> list[Attachment]:
        """Return the attachments of all messages; too many raise InvalidRequest."""
        attachments = [one for message in self.history for one in message.attachments]
        attachments += self.attachments
        attachments += [one for message in self.progress for one in message.attachments]
        check_number(attachments)
        return attachments

    def rename_field(self, error: InvalidRequest, tools: Collection[str] = ()) -> InvalidRequest:
        """Return the error with the query's field renamed to the request's field.

        `tools` are the fields of the tools in the request, if they are not at the same places in the query.
        """
        field, rule = error.metadata.get("field", ""), error.metadata.get("rule", "")
        if field == "toolChoice":
            return InvalidRequest.of("tool_choice", rule)
        if match := _TOOL_FIELD.fullmatch(field):
            named = [*tools][int(match["at"])] if tools else f"tools[{match['at']}]"
            return InvalidRequest.of(named + match["rest"], rule)
        match = _EARLIER_FIELD.fullmatch(field)
        if match is None:
            return error
        messages = self.history if match["list"] == "history" else self.progress
        rest = _CAPITAL.sub(lambda letter: f"_{letter[0].lower()}", match["rest"])
        return InvalidRequest.of(messages[int(match["at"])].name + rest, rule)


@dataclass(frozen=True, slots=True)
class ToolResult:
    call: CallId
    payload: str
    """Result as JSON text."""


@dataclass(frozen=True, slots=True)
class AgentRequest:
    model: str
    """Key of the agent."""

    conversation: Conversation = field(default_factory=Conversation)

    known: int = 0
    """Number of leading history messages that an existing chat already has; they are dropped when the chat
    continues.
    """

    references: Sequence[common_pb2.Reference] = ()
    """References to the conversation's attachments after their upload."""

    results: Sequence[ToolResult] = ()

    tools: Mapping[str, agent_pb2.ClientTool] = field(default_factory=dict[str, agent_pb2.ClientTool])
    """By their fields in the request."""

    tool_choice: str = ""
    """The query's toolChoice; empty for the agent's own."""

    parallel_tool_calls: bool | None = None
    output_format: common_pb2.OutputFormat | None = None
    chat_id: str = ""
    """Chat to continue; empty for a new one."""

    stream: bool = False
    background: bool = False
    """Whether the run continues when its caller disconnects."""

    include_usage: bool = False
    """Whether a chat completions stream ends with the usage."""

    previous_response_id: str = ""
    metadata: dict[str, str] = field(default_factory=dict[str, str])


def read_chat_id(chat_id: str, name: str) -> str:
    """Return a valid chat id from the field `name`; InvalidRequest names the field if it is not a UUID."""
    if chat_id and not is_uuid(chat_id):
        raise InvalidRequest.of(name, "must be a UUID in lower case")
    return chat_id


def find_results(entries: Sequence[EarlierMessage], name: str) -> list[ToolResult]:
    """Return the tool results at the end of the conversation, for a waiting run; empty if the calls are not ours.

    `name` is the field of the messages.

    Raises:
        InvalidRequest: The results belong to several runs, or some calls of the same answer have no result.
    """
    first = _find_last_results(entries)
    results = list_results(entries)
    if not results:
        return []
    if len(results) < len(entries) - first or len({result.call.run_id for result in results}) > 1:
        raise InvalidRequest.of(name, "must end with results of the calls of one answer")
    answered = {entry.call_id for entry in entries[first:]}
    asked = entries[first - 1].calls if first else ()
    if missing := [call.id for call in asked if call.id not in answered]:
        raise InvalidRequest.of(name, f"must have a result for each tool call; {len(missing)} of them have none")
    return results


def list_results(entries: Sequence[EarlierMessage]) -> list[ToolResult]:
    """Return the tool results at the end of the conversation that belong to our runs."""
    calls = [(call_ids.parse_call_id(entry.call_id), entry.text) for entry in entries[_find_last_results(entries) :]]
    return [ToolResult(call, _to_json(text)) for call, text in calls if call is not None]


def _find_last_results(entries: Sequence[EarlierMessage]) -> int:
    return next((at for at in range(len(entries), 0, -1) if entries[at - 1].role != "tool"), 0)


def find_query(entries: Sequence[EarlierMessage]) -> int:
    """Return the index of the user's last message, -1 if there is none."""
    return next((at for at in range(len(entries) - 1, -1, -1) if entries[at].role == "user"), -1)


def make_conversation(entries: Sequence[EarlierMessage], results: Sequence[ToolResult], name: str) -> Conversation:
    """Return the messages as a query; if there are results for a waiting run, only the attachments of those."""
    if not results:
        return split_conversation(entries, name)
    answered = entries[_find_last_results(entries) :]
    return Conversation(attachments=[one for entry in answered for one in entry.attachments])


def split_conversation(entries: Sequence[EarlierMessage], name: str) -> Conversation:
    """Split the messages at the user's last one.

    Raises:
        InvalidRequest: The messages do not end with a message of the user, or with tool results after one.
    """
    spoken = [entry for entry in entries if entry.role not in INSTRUCTING]
    at = find_query(entries)
    if at < 0 or spoken[-1].role not in ("user", "tool"):
        raise InvalidRequest.of(name, "must end with a message of the user, or with tool results after one")
    last, later = entries[at], entries[at + 1 :]
    if not last.text:
        raise InvalidRequest.of(last.name, "must have text, as the last message of the user")
    return Conversation(
        message=last.text,
        attachments=last.attachments,
        history=[*entries[:at], *(entry for entry in later if entry.role in INSTRUCTING)],
        progress=[entry for entry in later if entry.role not in INSTRUCTING],
    )


def _to_json(text: str) -> str:
    """Return JSON unchanged, and any other text as a JSON string."""
    try:
        value = orjson.loads(text)
    except orjson.JSONDecodeError:
        return orjson.dumps(text).decode()
    return text if measure_json_depth(value) <= JSON_DEPTH_MAX else orjson.dumps(text).decode()
