"""Lines of Append requests: decoded without numbers, and encoded again for an owner that takes a run over."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from headrace.errors import InvalidRequest
from headrace.v1 import llm_pb2, memory_pb2
from services.memory.context.pairing import make_text_message
from services.memory.context.token_counter import INLINE_BYTES_MAX
from services.memory.log.lines import (
    Event,
    Insight,
    Intent,
    Known,
    Learned,
    Line,
    Query,
    Run,
    Step,
    Unknown,
    decode_charges,
    encode_charges,
    make_stamp,
)
from services.memory.log.media import Blob, get_media
from services.memory.log.messages import (
    Range,
    StoredMessage,
    Tokens,
    decode_content,
    encode_message,
    encode_range,
    join_text,
)
from services.memory.log.raw_json import ABSENT, dump_proto, embed_json, load_delta, load_proto
from services.runtime.auth.identity import require_identity
from services.runtime.tokens.count import is_loaded

if TYPE_CHECKING:
    from services.memory.context.token_counter import TokenCounters

SEQ_MAX = 2**63 - 1


@dataclass(frozen=True, slots=True)
class LineContext:
    action_tools: frozenset[str]
    count: Callable[[llm_pb2.Message], Tokens]
    learned: Mapping[int, Learned]
    """Learned token ratios, by index of the line with the usage."""
    blobs: list[Blob] = field(default_factory=list[Blob])
    """Output: blobs to store before the lines."""


class AppendDecoder:
    """Decodes small requests on the event loop, others in a thread."""

    def __init__(self, counting: TokenCounters, action_tools: frozenset[str]) -> None:
        self._counting = counting
        self._action_tools = action_tools

    async def decode_append(self, request: memory_pb2.AppendRequest) -> tuple[list[Known], list[Blob]]:
        """Return the lines of `request` with token counts, and the blobs to store before them.

        Raises:
            InvalidRequest: A line violates the format.
        """
        counter = self._counting.create_append_counter(request.chat_id)
        drafting = LineContext(self._action_tools, counter.count_for_log, self._counting.learn_ratios(request))
        if is_loaded(counter.encoding) and request.ByteSize() <= INLINE_BYTES_MAX and not _has_media(request):
            return decode_lines(request, drafting), drafting.blobs
        return await asyncio.to_thread(decode_lines, request, drafting), drafting.blobs

    async def decode_pending(self, request: memory_pb2.LoadContextRequest) -> Known:
        line = memory_pb2.LogLine(query=memory_pb2.QueryLine(query=request.pending_query))
        appending = memory_pb2.AppendRequest(chat_id=request.chat_id, run_id=request.run_id, lines=[line])
        return (await self.decode_append(appending))[0][0]


def decode_lines(request: memory_pb2.AppendRequest, drafting: LineContext) -> list[Known]:
    """Return the lines of `request`, without number and time; decode large requests in a thread.

    Raises:
        InvalidRequest: A line, which the error names, violates the format.
    """
    _check_order([line.WhichOneof("line") for line in request.lines])
    lines = [_decode_line(request, index, drafting) for index in range(len(request.lines))]
    lines[0].lines = len(lines)
    return lines


def _check_order(kinds: list[str | None]) -> None:
    for index, kind in enumerate(kinds):
        if kind is None:
            raise InvalidRequest.of(f"lines[{index}]", "must be one of query, step, event, run, insight and intent")
        if kind == "query" and index > 0:
            raise InvalidRequest.of(f"lines[{index}].query", "must be the run's first line")
        if kind == "run" and index < len(kinds) - 1:
            raise InvalidRequest.of(f"lines[{index}].run", "must be the run's last line")


def _decode_line(request: memory_pb2.AppendRequest, index: int, drafting: LineContext) -> Known:
    given, path = request.lines[index], f"lines[{index}]"
    _check_seqs(given, path)
    request_id = "" if index else request.request_id
    stamped = make_stamp(request.chat_id, request.run_id, request.generation, request_id=request_id)
    stamped["charges"] = decode_charges(given.charges) if given.charges else None
    match given.WhichOneof("line"):
        case "query":
            query = given.query.query
            tokens = drafting.count(make_text_message("user", query.message))
            agent_hash, traceparent = given.query.agent_hash, given.query.traceparent
            return Query(
                **stamped,
                query=dump_proto(query),
                agent_hash=agent_hash,
                traceparent=traceparent,
                credential=require_identity().credential,
                makers=tuple(sorted(require_identity().makers)),
                agent_version=given.query.agent_version,
                agent_version_hash=given.query.agent_version_hash,
                tokens=tokens,
            )
        case "step":
            step = _decode_step(given.step, f"{path}.step", stamped, drafting)
            step.learned = drafting.learned.get(index)
            return step
        case "event":
            event = given.event
            if event.event.WhichOneof("payload") is None:
                raise InvalidRequest.of(f"{path}.event.event", "must have a payload")
            return Event(**stamped, context_id=event.context_id or None, event=dump_proto(event.event))
        case "run":
            return _decode_run(given.run, f"{path}.run", stamped)
        case "insight":
            note = given.insight
            return Insight(
                **stamped,
                context_id=note.context_id or None,
                text=note.text,
                tool_call_id=note.tool_call_id or None,
            )
        case _:
            return Intent(**stamped, context_id=given.intent.context_id or None, text=given.intent.text)


def _check_seqs(given: memory_pb2.LogLine, path: str) -> None:
    """Raise InvalidRequest for event numbers that no index can store."""
    ranges = {f"{path}.step.events": given.step.events, f"{path}.run.events": given.run.events}
    ranges |= {f"{path}.step.messages[{n}].events": it.events for n, it in enumerate(given.step.messages)}
    seqs = {f"{path}.event.event.seq": given.event.event.seq}
    seqs |= {name: max(events.first_seq, events.last_seq) for name, events in ranges.items()}
    for name, seq in seqs.items():
        if seq > SEQ_MAX:
            raise InvalidRequest.of(name, f"must be at most {SEQ_MAX}")


def _decode_step(given: memory_pb2.StepLine, path: str, stamped: dict[str, Any], drafting: LineContext) -> Step:
    return Step(
        **stamped,
        stage=given.stage,
        seq=given.seq,
        task_id=given.task_id or None,
        context_id=given.context_id or None,
        system=given.system if given.HasField("system") else None,
        plan=dump_proto(given.plan) if given.HasField("plan") else ABSENT,
        messages=[
            encode_message(message, f"{path}.messages[{index}]", drafting.action_tools, drafting.blobs, drafting.count)
            for index, message in enumerate(given.messages)
        ],
        events=encode_range(given),
        reminders={reminder.key: reminder.text for reminder in given.reminders},
    )


def _decode_run(given: memory_pb2.RunLine, path: str, stamped: dict[str, Any]) -> Run:
    events = encode_range(given)
    if events is None:
        raise InvalidRequest.of(f"{path}.events", "must be the terminal event's seq, twice")
    return Run(
        **stamped,
        state=given.state,
        finish_reason=given.finish_reason or None,
        error=dump_proto(given.error) if given.HasField("error") else ABSENT,
        usage=dump_proto(given.usage) if given.HasField("usage") else ABSENT,
        output=embed_json(given.output) if given.HasField("output") else ABSENT,
        recording=given.recording or None,
        recording_problem=given.recording_problem or None,
        events=events,
    )


def _has_media(request: memory_pb2.AppendRequest) -> bool:
    return any(
        get_media(part) is not None
        for line in request.lines
        for message in line.step.messages
        for part in message.message.content
    )


def encode_lines(lines: Iterable[Line]) -> Iterator[memory_pb2.LogLine]:
    for line in lines:
        if not isinstance(line, Unknown) and (encoded := _encode_line(line)) is not None:
            encoded.charges.extend(encode_charges(line.charges or ()))
            yield encoded


def _encode_line(line: Known) -> memory_pb2.LogLine | None:
    match line:
        case Query():
            query = memory_pb2.QueryLine(
                agent_hash=line.agent_hash,
                traceparent=line.traceparent,
                credential=line.credential,
                makers=line.makers,
                agent_version=line.agent_version,
                agent_version_hash=line.agent_version_hash,
            )
            load_proto(line.query, query.query)
            return memory_pb2.LogLine(query=query)
        case Step():
            return memory_pb2.LogLine(step=_encode_step(line))
        case Event():
            delta = load_delta(line.event)
            if delta is None:
                return None
            return memory_pb2.LogLine(event=memory_pb2.EventLine(context_id=line.context_id, event=delta))
        case Run():
            return memory_pb2.LogLine(run=_encode_run(line))
        case Insight():
            note = memory_pb2.NoteLine(context_id=line.context_id, text=line.text, tool_call_id=line.tool_call_id)
            return memory_pb2.LogLine(insight=note)
        case Intent():
            return memory_pb2.LogLine(intent=memory_pb2.NoteLine(context_id=line.context_id, text=line.text))
        case _:
            return None


def _encode_step(line: Step) -> memory_pb2.StepLine:
    step = memory_pb2.StepLine(
        stage=line.stage,
        seq=line.seq,
        task_id=line.task_id,
        context_id=line.context_id,
        system=line.system,
        messages=[_encode_message(message) for message in line.messages],
        events=_encode_range(line.events),
        reminders=[memory_pb2.Reminder(key=key, text=text) for key, text in line.reminders.items()],
    )
    if line.plan:
        load_proto(line.plan, step.plan)
    return step


def _encode_message(stored: StoredMessage) -> memory_pb2.LogMessage:
    message = llm_pb2.Message(
        role=stored.role,
        content=decode_content(stored.content),
        tool_call_id=stored.tool_call_id,
        name=stored.name,
        reasoning_content=join_text(stored.reasoning_content) if stored.reasoning_content else None,
        provider_state=bytes(stored.provider_state).decode() if stored.provider_state else None,
    )
    for call in stored.tool_calls or ():
        arguments = call.function.arguments if stored.raw_arguments is None else stored.raw_arguments
        message.tool_calls.add(id=call.id, name=call.function.name, arguments=arguments)
    given = memory_pb2.LogMessage(
        message=message,
        ts=stored.ts,
        msg_id=stored.msg_id,
        reasoning_id=stored.reasoning_id,
        content_id=stored.content_id,
        tool_id=stored.tool_id,
        action_id=stored.action_id,
        events=_encode_range(stored.events),
        ok=stored.ok,
        tool_params=bytes(stored.tool_params).decode() if stored.tool_params else None,
        finish_reason=stored.finish_reason,
    )
    if stored.timing is not None:
        given.timing.started_at, given.timing.ended_at = stored.timing.started_at, stored.timing.ended_at
    if stored.usage:
        load_proto(stored.usage, given.usage)
    if stored.tool:
        load_proto(stored.tool, given.tool)
    return given


def _encode_run(line: Run) -> memory_pb2.RunLine:
    run = memory_pb2.RunLine(state=line.state, finish_reason=line.finish_reason, events=_encode_range(line.events))
    if line.error:
        load_proto(line.error, run.error)
    if line.usage:
        load_proto(line.usage, run.usage)
    if line.output:
        run.output = bytes(line.output).decode()
    if line.recording:
        run.recording = line.recording
    if line.recording_problem:
        run.recording_problem = line.recording_problem
    return run


def _encode_range(events: Range | None) -> memory_pb2.EventRange | None:
    return None if events is None else memory_pb2.EventRange(first_seq=events.first, last_seq=events.last)
