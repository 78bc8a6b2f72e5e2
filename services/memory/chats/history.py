"""A chat's log as events for people.

Events of queries and runs are derived, event lines are unchanged, and the messages of a step become snapshots: whole
blocks, each with the seq of its last delta.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from headrace.errors import InvalidRequest
from headrace.v1 import agent_pb2, common_pb2, memory_pb2
from services.memory.compaction.receipt import to_event
from services.memory.context.queries import EarlierMessage, QueryTexts
from services.memory.context.scopes import get_agent_id
from services.memory.log.chat_info import count_derived_events, make_chat_name
from services.memory.log.lines import STAGES_BEFORE_ANSWER, CompactBoundary, Event, Line, Query, Run, Step
from services.memory.log.media import FindBlob, fill_json_media
from services.memory.log.messages import Call, StoredMessage, join_text
from services.memory.log.raw_json import load_delta, load_proto
from services.runtime.auth.identity import Identity
from services.runtime.formats.same_fields import copy_fields

if TYPE_CHECKING:
    from services.memory.log.chat import Chat

Snapshot = TypeVar("Snapshot", agent_pb2.ToolSnapshot, agent_pb2.ActionSnapshot)

SUBAGENT = "subagent-"
"""Prefix of a sub-agent's id, and of every context id within it."""


def _make_snapshots(line: Step, params: Mapping[str, str]) -> Iterator[agent_pb2.AgentDelta]:
    """Yield a step's events, without unsent messages (drafts), which have no event range.

    `params` maps action ids to arguments.
    """
    for message in line.messages:
        if message.events is None:
            continue
        delta = _make_snapshot(line, message)
        if delta is None:
            continue
        if message.role == "tool" and message.ok is not False and (param := params.get(message.action_id or "")):
            snapshot = agent_pb2.AgentDelta(seq=message.events.first)
            snapshot.action_param.action_id, snapshot.action_param.param = message.action_id or "", param
            yield _fill_envelope(snapshot, line, message)
        delta.seq = message.events.last
        yield _fill_envelope(delta, line, message)


def _fill_envelope(delta: agent_pb2.AgentDelta, line: Step, message: StoredMessage) -> agent_pb2.AgentDelta:
    delta.timestamp = message.ts or line.updated_at
    if line.task_id is not None:
        delta.task_id = line.task_id
    if line.context_id is not None and line.context_id.startswith(SUBAGENT):
        delta.subagent_id = get_agent_id(line.context_id)
    return delta


def _make_snapshot(line: Step, message: StoredMessage) -> agent_pb2.AgentDelta | None:
    if message.role == "tool":
        return _make_result_event(message)
    if message.role != "assistant":
        return None
    if message.tool_calls:
        return _make_call_snapshot(line, message, message.tool_calls[0])
    if message.reasoning_content is not None:
        reasoning = agent_pb2.ReasoningSnapshot(
            reasoning_id=message.reasoning_id or "", run_id=line.run_id, text=join_text(message.reasoning_content)
        )
        return agent_pb2.AgentDelta(reasoning_snapshot=reasoning)
    content = agent_pb2.ContentSnapshot(
        content_id=message.content_id or "",
        run_id=line.run_id,
        text=join_text(message.content),
        stage=line.stage,
        is_answer=line.context_id is None and line.stage not in STAGES_BEFORE_ANSWER,
    )
    return agent_pb2.AgentDelta(content_snapshot=content)


def _make_call_snapshot(line: Step, message: StoredMessage, call: Call) -> agent_pb2.AgentDelta:
    names: dict[str, Any] = {"run_id": line.run_id}
    if message.raw_arguments is None:
        names["arguments"] = call.function.arguments
    if message.action_id is not None:
        action = agent_pb2.ActionSnapshot(action_id=message.action_id, action_name=call.function.name, **names)
        return agent_pb2.AgentDelta(action_snapshot=_describe_tool(message, action))
    tool_id, name = message.tool_id or call.id, call.function.name
    tool = agent_pb2.ToolSnapshot(tool_id=tool_id, tool_name=name, tool_params=_find_params(message, call), **names)
    return agent_pb2.AgentDelta(tool_snapshot=_describe_tool(message, tool))


def _describe_tool(message: StoredMessage, snapshot: Snapshot) -> Snapshot:
    return load_proto(message.tool, snapshot) if message.tool else snapshot


def _find_params(message: StoredMessage, call: Call) -> str | None:
    """Return the arguments that a call was run with; None if it did not run with any."""
    if message.tool_params:
        return bytes(message.tool_params).decode()
    # Arguments with unresolved template braces were refused, so the call did not run with them.
    is_refused = message.raw_arguments is not None or "{{" in call.function.arguments
    return None if is_refused else call.function.arguments


def _make_result_event(message: StoredMessage) -> agent_pb2.AgentDelta:
    text = join_text(message.content)
    if message.action_id is not None:
        return agent_pb2.AgentDelta(action_result=agent_pb2.ActionResult(action_id=message.action_id, result=text))
    tool_id = message.tool_id or message.tool_call_id or ""
    result = agent_pb2.ToolResult(tool_id=tool_id, result=text, ok=message.ok is not False)
    return agent_pb2.AgentDelta(tool_result=result)


def list_items(chat: Chat, from_n: int = 0) -> list[list[Line]]:
    """List the visible history from line `from_n` on, as lists of lines: one per run, or per compaction between
    runs."""
    runs = [lines for run_id, lines in chat.visible_runs.items() if run_id]
    between: list[list[Line]] = [[line] for line in chat.visible_runs.get("", ()) if isinstance(line, CompactBoundary)]
    items = (lines for lines in (*runs, *between) if lines[0].n >= from_n)
    return sorted(items, key=lambda lines: lines[0].n)


PAGE_BYTES_MAX = 3 * 1024 * 1024
"""Maximum size of a page's events in bytes; it keeps a response below 4 MiB, the default limit of gRPC clients."""

EVENT_BYTES = 5
"""Size of an event without its content."""


@dataclass(slots=True)
class _Page:
    events: list[agent_pb2.AgentDelta]
    begun: list[list[Line]]
    """Lines of the runs that have their first event on this page."""
    earlier_token: str


class _RawMessages(msgspec.Struct, rename="camel"):
    run_id: str = ""
    n: int = msgspec.field(default=0, name="_n")
    updated_at: int = 0
    query: QueryTexts | None = None
    messages: list[msgspec.Raw] = []


_RAW_MESSAGES = msgspec.json.Decoder(_RawMessages)


@dataclass(frozen=True, slots=True)
class ChatHistory:
    """The visible lines of all runs, or of one, at one moment."""

    chat_id: str
    name: str
    title: str
    runs: list[list[Line]]
    """Lists of lines by the number of their first: one per run, or per compaction between runs."""

    @classmethod
    def from_chat(cls, chat: Chat, run_id: str | None) -> ChatHistory:
        runs = [list(lines) for lines in list_items(chat) if run_id in (None, lines[0].run_id)]
        return cls(chat.chat_id, chat.info.name, chat.info.title, runs)

    def build_response(self, page_token: str, log: bytes | None, find: FindBlob) -> memory_pb2.GetChatResponse:
        """Build the page before `page_token`, or the newest one if it is empty. Raises InvalidRequest if the token's
        run is not there."""
        page = self._find_page(page_token)
        page_lines = [line for lines in page.begun for line in lines]
        return memory_pb2.GetChatResponse(
            chat_id=self.chat_id,
            chat_name=self.name,
            title=self.title,
            events=page.events,
            references=list_references(page_lines),
            raw_messages=None if log is None else fill_json_media(self._join_raw_messages(log, page_lines), find),
            earlier_page_token=page.earlier_token,
        )

    def _find_page(self, token: str) -> _Page:
        """Return the page before the token, which holds a run's first line and the number of its events before the
        page."""
        runs, count = self.runs, None
        if token:
            first_n, _, number = token.partition(":")
            at = next((at for at, lines in enumerate(runs) if str(lines[0].n) == first_n), None)
            if at is None or not number.isdecimal():
                raise InvalidRequest.of("pageToken", "must be of a page of this chat, as it is now")
            runs, count = runs[: at + 1], int(number)
        page, room = _Page([], [], ""), PAGE_BYTES_MAX
        for lines in reversed(runs):
            events = list_events(lines)[:count]
            count = None
            while events:
                size = events[-1].ByteSize()  # which encodes it
                if page.events and size > room:
                    break
                room -= size + EVENT_BYTES
                page.events.append(events.pop())
            if events:
                page.earlier_token = f"{lines[0].n}:{len(events)}"
                break
            page.begun.append(lines)
        page.events.reverse()
        page.begun.reverse()
        return page

    def _join_raw_messages(self, log: bytes, lines: Iterable[Line]) -> str:
        """Join the lines' messages into a JSON array; queries become user messages, along with the messages they
        carry."""
        numbers = frozenset(line.n for line in lines)
        messages: list[msgspec.Raw] = []
        for text in log.splitlines():
            try:
                line = _RAW_MESSAGES.decode(text)
            except (ValueError, RecursionError):
                continue  # A damaged line is left out, so that the others can still be read.
            if line.n not in numbers:
                continue
            if line.query is not None:
                messages += _encode_query(line.query, line.updated_at)
            messages += line.messages
        return msgspec.json.encode(messages).decode()


def list_events(lines: Sequence[Line]) -> list[agent_pb2.AgentDelta]:
    """List a run's events by seq, including those that a waiting query implies."""
    params: dict[str, str] = {}
    for message in (message for line in lines if isinstance(line, Step) for message in line.messages):
        if message.action_id is not None and message.tool_calls:
            params[message.action_id] = _find_params(message, message.tool_calls[0]) or ""
    return sorted((event for line in lines for event in _derive_events(line, params)), key=lambda event: event.seq)


def list_references(lines: Iterable[Line]) -> list[common_pb2.Reference]:
    queries = (_load_query(line) for line in lines if isinstance(line, Query))
    found: dict[str, common_pb2.Reference] = {}
    for query in queries:
        for reference in query.references:
            found.setdefault(reference.id, reference)
    return list(found.values())


def _encode_query(query: QueryTexts, updated_at: int) -> Iterator[msgspec.Raw]:
    asked = EarlierMessage("user", query.message)
    for message in (*query.history, asked, *query.progress):
        yield msgspec.Raw(msgspec.json.encode(msgspec.structs.replace(message.to_stored(), ts=updated_at)))


def _load_query(line: Query) -> agent_pb2.QueryRequest:
    return load_proto(line.query, agent_pb2.QueryRequest())


def _derive_events(line: Line, params: Mapping[str, str]) -> Iterator[agent_pb2.AgentDelta]:
    match line:
        case Query():
            yield from _derive_query_events(line)
        case Step():
            yield from _make_snapshots(line, params)
        case Event():
            delta = load_delta(line.event)
            if delta is not None:
                yield delta
        case Run():
            yield _make_terminal_event(line)
        case CompactBoundary() if not line.run_id:  # one inside a run has events
            yield _make_compaction_event(line)
        case _:
            pass


def _derive_query_events(line: Query) -> Iterator[agent_pb2.AgentDelta]:
    query = _load_query(line)
    asked = load_proto(line.query, agent_pb2.RequestQuery())  # the fields of a RequestQuery are fields of the query
    asked.chat_id, asked.role = line.chat_id, query.role or "user"
    asked.by = Identity.from_stored(line.tenant, line.user).user
    yield agent_pb2.AgentDelta(seq=1, timestamp=line.updated_at, request_query=asked)
    if line.n == 1:
        start = agent_pb2.ChatStart(chat_id=line.chat_id, chat_name=make_chat_name(query.message))
        yield agent_pb2.AgentDelta(seq=2, timestamp=line.updated_at, chat_start=start)
    run = agent_pb2.RunStart(
        run_id=line.run_id,
        chat_id=line.chat_id,
        agent_key=query.agent_key,
        agent_version=line.agent_version or None,
        agent_version_hash=line.agent_version_hash or None,
    )
    yield agent_pb2.AgentDelta(seq=count_derived_events(line), timestamp=line.updated_at, run_start=run)


def _make_compaction_event(line: CompactBoundary) -> agent_pb2.AgentDelta:
    """Create the event of a compaction between runs; it has no seq of any run."""
    metadata, delta = line.compact_metadata, agent_pb2.AgentDelta(timestamp=line.updated_at)
    receipt = None if metadata.receipt is None else to_event(metadata.receipt)
    match metadata.strategy:
        case "failed":
            failed = agent_pb2.CompactionFail(chat_id=line.chat_id, reason=metadata.reason)
            delta.compaction_fail.CopyFrom(failed)
        case "fallback":
            shorter = copy_fields(metadata, agent_pb2.CompactionFallback, chat_id=line.chat_id, receipt=receipt)
            delta.compaction_fallback.CopyFrom(shorter)
        case _:
            done = copy_fields(metadata, agent_pb2.CompactionComplete, chat_id=line.chat_id, receipt=receipt)
            delta.compaction_complete.CopyFrom(done)
    return delta


def _make_terminal_event(line: Run) -> agent_pb2.AgentDelta:
    usage, error = common_pb2.Usage(), common_pb2.Failure()
    if line.usage:
        load_proto(line.usage, usage)
    if line.error:
        load_proto(line.error, error)
    delta = agent_pb2.AgentDelta(seq=line.events.last, timestamp=line.updated_at)
    match line.state:
        case "completed":
            reason, output = line.finish_reason or "stop", bytes(line.output).decode() or None
            done = agent_pb2.RunComplete(run_id=line.run_id, finish_reason=reason, usage=usage, output=output)
            delta.run_complete.CopyFrom(done)
        case "cancelled":
            delta.run_cancel.CopyFrom(agent_pb2.RunCancel(run_id=line.run_id, usage=usage))
        case _:
            delta.run_error.CopyFrom(agent_pb2.RunError(run_id=line.run_id, error=error, usage=usage))
    return delta
