"""A request of either API, whose conversation becomes one query.

Earlier messages precede the run's one message as lines of JSON, which no text can break out of, unless a continued chat
has them in its log.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import orjson

from headrace.errors import InvalidRequest
from headrace.v1 import agent_pb2
from services.facade.openai_api import call_ids
from services.facade.openai_api.call_ids import CallId
from services.runtime.rpc.field_rules import JSON_DEPTH_MAX, measure_json_depth

BEFORE = "The conversation so far, the oldest message first, each as one line of JSON:"
BEHIND = "The new message, to be answered:"


@dataclass(frozen=True, slots=True)
class EarlierCall:
    id: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class EarlierMessage:
    role: str
    text: str
    calls: Sequence[EarlierCall] = ()

    call_id: str = ""

    @property
    def line(self) -> bytes:
        calls = [{"name": call.name, "arguments": call.arguments} for call in self.calls]
        return orjson.dumps({"role": self.role, "content": self.text} | ({"tool_calls": calls} if calls else {}))


@dataclass(frozen=True, slots=True)
class ToolResult:
    call: CallId
    payload: str
    """The result as JSON text."""


@dataclass(frozen=True, slots=True)
class AgentRequest:
    model: str
    """The agent's key."""

    message: str
    """The query; empty when there are results."""

    results: Sequence[ToolResult] = ()

    tools: Sequence[agent_pb2.ClientTool] = ()
    chat_id: str = ""
    """The chat to continue; empty for a new one."""

    stream: bool = False
    background: bool = False
    """Whether the run goes on when its caller leaves."""

    include_usage: bool = False
    """Whether a stream of chat completions ends with the usage."""

    previous_response_id: str = ""
    metadata: dict[str, str] = field(default_factory=dict[str, str])


def find_results(entries: Sequence[EarlierMessage], name: str) -> list[ToolResult]:
    """Return the results that end the conversation; `name` is the field with the messages.

    Raises:
        InvalidRequest: They belong to several runs, or calls of the same answer have none.
    """
    found: list[ToolResult] = []
    for at in range(len(entries) - 1, -1, -1):
        entry = entries[at]
        if entry.role != "tool":
            answered = {str(result.call) for result in found}
            if found and (missing := [call.id for call in entry.calls if call.id not in answered]):
                rule = f"must have a result for each tool call; {len(missing)} of them have none"
                raise InvalidRequest.of(name, rule)
            break
        call = call_ids.parse_call_id(entry.call_id)
        if call is None:
            raise InvalidRequest.of(f"{name}[{at}]", "must have the id of a call that this server has made")
        found.append(ToolResult(call, _to_json(entry.text)))
    if len({result.call.run_id for result in found}) > 1:
        raise InvalidRequest.of(name, "must end with results of the calls of one answer")
    return found[::-1]


def build_message(entries: Sequence[EarlierMessage], name: str, *, is_new: bool) -> str:
    """Build the query from the last entry, after the earlier ones when the chat `is_new`.

    Raises:
        InvalidRequest: The last message is not the user's.
    """
    if not entries or entries[-1].role != "user":
        raise InvalidRequest.of(name, "must end with a message of the user, or with tool results")
    *earlier, last = entries
    if not last.text:
        raise InvalidRequest.of(name, "must end with a message that has text")
    if not earlier or not is_new:
        return last.text
    lines = b"\n".join(entry.line for entry in earlier).decode()
    return f"{BEFORE}\n{lines}\n\n{BEHIND}\n{last.text}"


def _to_json(text: str) -> str:
    """Return JSON unchanged, and any other text as a JSON string."""
    try:
        value = orjson.loads(text)
    except orjson.JSONDecodeError:
        return orjson.dumps(text).decode()
    return text if measure_json_depth(value) <= JSON_DEPTH_MAX else orjson.dumps(text).decode()
