"""The view for people: a chat's log as events, as if they had been watched in snapshots (events.md, History).

What a query or run line implies is derived from it; a step gives snapshots; event lines are as they were sent.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import msgspec

from headrace.v1 import agent_pb2, common_pb2
from services.memory.facts import Asked, chat_name, derived_events
from services.memory.json_load import load, load_delta
from services.memory.lines import Event, Line, Query, Run, Step, StoredMessage, TextPart
from services.memory.snapshots import snapshots


class _RawMessages(msgspec.Struct, rename="camel"):
    run_id: str = ""
    updated_at: int = 0
    query: Asked | None = None
    messages: list[msgspec.Raw] = []


_RAW_MESSAGES = msgspec.json.Decoder(_RawMessages)


def events(lines: Sequence[Line]) -> list[agent_pb2.AgentDelta]:
    """The events of one run, in order of seq. All that its query implies is given, even while it waits its turn."""
    return sorted((event for line in lines for event in _events(line)), key=lambda event: event.seq)


def references(lines: Iterable[Line]) -> list[common_pb2.Reference]:
    """All references of the queries in `lines`, in order, each id once."""
    queries = (_query(line) for line in lines if isinstance(line, Query))
    found: dict[str, common_pb2.Reference] = {}
    for query in queries:
        for reference in query.references:
            found.setdefault(reference.id, reference)
    return list(found.values())


def raw_messages(log: bytes, run_id: str | None) -> str:
    """The messages of a log file as one JSON array: a query as the user message it is to a model, the others as they
    are stored; only those of a run when it is given.
    """
    found: list[msgspec.Raw] = []
    for text in log.splitlines():
        try:
            line = _RAW_MESSAGES.decode(text)
        except (ValueError, RecursionError):
            continue  # a damaged line: what can be read is given
        if run_id is not None and line.run_id != run_id:
            continue
        if line.query is not None:
            asked = StoredMessage(role="user", content=[TextPart(line.query.message)], ts=line.updated_at)
            found.append(msgspec.Raw(msgspec.json.encode(asked)))
        found += line.messages
    return msgspec.json.encode(found).decode()


def _query(line: Query) -> agent_pb2.QueryRequest:
    query = agent_pb2.QueryRequest()
    load(line.query, query)
    return query


def _events(line: Line) -> Iterator[agent_pb2.AgentDelta]:
    match line:
        case Query():
            yield from _derived(line)
        case Step():
            yield from snapshots(line)
        case Event():
            delta = load_delta(line.event)
            if delta is not None:
                yield delta
        case Run():
            yield _terminal(line)
        case _:
            pass


def _derived(line: Query) -> Iterator[agent_pb2.AgentDelta]:
    query = _query(line)
    asked = agent_pb2.RequestQuery()
    load(line.query, asked)  # the fields of a RequestQuery are fields of the query
    asked.chat_id, asked.role = line.chat_id, query.role or "user"
    yield agent_pb2.AgentDelta(seq=1, timestamp=line.updated_at, request_query=asked)
    if line.n == 1:
        start = agent_pb2.ChatStart(chat_id=line.chat_id, chat_name=chat_name(query.message))
        yield agent_pb2.AgentDelta(seq=2, timestamp=line.updated_at, chat_start=start)
    run = agent_pb2.RunStart(run_id=line.run_id, chat_id=line.chat_id, agent_key=query.agent_key)
    yield agent_pb2.AgentDelta(seq=derived_events(line), timestamp=line.updated_at, run_start=run)


def _terminal(line: Run) -> agent_pb2.AgentDelta:
    usage, error = common_pb2.Usage(), common_pb2.Failure()
    if line.usage:
        load(line.usage, usage)
    if line.error:
        load(line.error, error)
    delta = agent_pb2.AgentDelta(seq=line.events.last, timestamp=line.updated_at)
    match line.state:
        case "completed":
            done = agent_pb2.RunComplete(run_id=line.run_id, finish_reason=line.finish_reason or "stop", usage=usage)
            delta.run_complete.CopyFrom(done)
        case "cancelled":
            delta.run_cancel.CopyFrom(agent_pb2.RunCancel(run_id=line.run_id, usage=usage))
        case _:
            delta.run_error.CopyFrom(agent_pb2.RunError(run_id=line.run_id, error=error, usage=usage))
    return delta
