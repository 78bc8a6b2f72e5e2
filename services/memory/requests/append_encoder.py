"""A run's lines as they were appended, for an owner that takes it over."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from headrace.v1 import llm_pb2, memory_pb2
from services.memory.log.charges import encode_charges
from services.memory.log.lines import (
    Event,
    Insight,
    Intent,
    Known,
    Line,
    Query,
    Range,
    Run,
    Step,
    StoredMessage,
    Unknown,
)
from services.memory.log.messages import decode_content, join_text
from services.memory.log.proto_json import load_delta, load_proto


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
