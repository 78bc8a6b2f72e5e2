"""Parsing events from JSON: events written by json_form are read back unchanged."""

import pytest
from google.protobuf.descriptor import FieldDescriptor

from headrace.event_json import parse_event
from headrace.v1 import agent_pb2
from services.runtime.formats.json_form import event
from tests.support.messages import PAYLOADS, filled


@pytest.mark.parametrize("field", PAYLOADS, ids=lambda field: field.name)
def test_every_event_survives_a_round_trip_through_json(field: FieldDescriptor) -> None:
    delta = agent_pb2.AgentDelta(seq=2**64 - 1, timestamp=8)
    assert field.message_type is not None
    getattr(delta, field.name).CopyFrom(filled(field.message_type))
    for name in {"subagent_id", "task_id"} - set(field.message_type.fields_by_name):
        setattr(delta, name, name)
    sent = event(delta)
    assert sent is not None
    read = parse_event(sent.json)
    assert event(read) == sent
    assert read == delta


def test_json_within_an_event_keeps_its_text() -> None:
    arguments = '{ "big": 123456789012345678901234567890, "z" : [1.50, "\\u6c34}"] }'
    text = f'{{ "seq" : 1,\n "type": "tool.snapshot", "toolId": "t", "arguments" : {arguments}  , "timestamp": 2}}'
    assert parse_event(text).tool_snapshot.arguments == arguments


def test_unknown_event_types_have_no_payload_and_unknown_fields_are_ignored() -> None:
    newer = parse_event(b'{"seq":7,"type":"some.thing","x":[{}],"subagentId":"s","timestamp":8}')
    assert newer == agent_pb2.AgentDelta(seq=7, timestamp=8, subagent_id="s")
    known = parse_event('{"seq":7,"type":"content.delta","contentId":"c","delta":"d","x":{},"timestamp":8}')
    assert known.content_delta == agent_pb2.ContentDelta(content_id="c", delta="d")


NO_EVENTS = """
[]
{}
null
{"seq":1}
{"type":5}
{"type":"run.start","runId":7}
{"type":"x","seq":-1}
{"type":"plan.create","plan":[1]}
{"type":"run.error","error":"x"}
{"type":"tool.end","toolId":"t"
"""


@pytest.mark.parametrize("text", [*NO_EVENTS.split("\n"), b"\xff", "[" * 100_000])
def test_an_invalid_event_is_refused(text: str | bytes) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - of any kind
        parse_event(text)
