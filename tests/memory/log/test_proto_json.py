"""The JSON form of the protos: every event type round-trips, and some values must be kept exactly."""

from typing import Any

import msgspec
import pytest
from google.protobuf.message import Message

from headrace.v1 import agent_pb2, common_pb2
from services.memory.log.raw_json import dump_proto, load_delta, load_proto
from services.runtime.formats.json_form import rules_of

PAYLOADS = [field.name for field in agent_pb2.AgentDelta.DESCRIPTOR.oneofs_by_name["payload"].fields]


def fill_message(message: Any) -> Any:
    """Return `message` with every field set to a value whose loss would be noticed."""
    for number, field in enumerate(message.DESCRIPTOR.fields):
        if field.message_type is not None:
            fill_message(getattr(message, field.name).add() if field.is_repeated else getattr(message, field.name))
            continue
        samples: dict[str, Any] = {
            "string": '{"n": 12345678901234567890123}' if rules_of(field).json else f"\n{field.name}\t水",
            "number": number + 2**62 if field.cpp_type in (field.CPPTYPE_INT64, field.CPPTYPE_UINT64) else number,
            "bool": True,
        }
        kinds = {field.CPPTYPE_STRING: "string", field.CPPTYPE_BOOL: "bool"}
        value = samples[kinds.get(field.cpp_type, "number")]
        if field.is_repeated:
            getattr(message, field.name).append(value)
        else:
            setattr(message, field.name, value)
    return message


@pytest.mark.parametrize("name", PAYLOADS)
def test_every_event_round_trips(name: str) -> None:
    delta = agent_pb2.AgentDelta(seq=2**63 + 1, timestamp=2**53 + 1)
    fill_message(getattr(delta, name))
    again = load_delta(dump_proto(delta))
    assert again == delta


@pytest.mark.parametrize("name", PAYLOADS)
def test_an_event_without_values_round_trips(name: str) -> None:
    delta = agent_pb2.AgentDelta(seq=1, subagent_id="subagent-1", task_id="t")
    getattr(delta, name).SetInParent()
    again = load_delta(dump_proto(delta))
    assert again is not None
    assert again.WhichOneof("payload") == name
    assert dump_proto(again) == dump_proto(delta)


def test_an_event_is_flat_and_omits_absent_fields() -> None:
    delta = agent_pb2.AgentDelta(seq=7, timestamp=8, tool_end=agent_pb2.ToolEnd(tool_id="t", tool_params="[ 1]"))
    assert bytes(dump_proto(delta)) == b'{"seq":7,"type":"tool.end","toolId":"t","toolParams":[ 1],"timestamp":8}'


def test_an_unknown_type_is_none_and_unknown_fields_are_ignored() -> None:
    assert load_delta(msgspec.Raw(b'{"seq":1,"type":"later.event","x":1}')) is None
    assert load_delta(msgspec.Raw(b'{"seq":1,"type":"seq"}')) is None
    known = load_delta(msgspec.Raw(b'{"seq":1,"type":"content.end","contentId":"c","later":{}}'))
    assert known == agent_pb2.AgentDelta(seq=1, content_end=agent_pb2.ContentEnd(content_id="c"))


def test_json_of_several_lines_is_stored_on_one_line_and_keeps_its_numbers() -> None:
    reference = common_pb2.Reference(id="1", meta='{\r\n\t"n": 1.10,\n\t"m": "a\\nb"\n}')
    data = bytes(dump_proto(reference))
    assert b"\n" not in data
    assert b"\r" not in data
    again = common_pb2.Reference()
    load_proto(msgspec.Raw(data), again)
    assert again.meta == '{  \t"n": 1.10, \t"m": "a\\nb" }'


@pytest.mark.parametrize("message", [common_pb2.Usage(cost_usd=float("nan")), common_pb2.Reference(meta="")])
def test_values_that_json_cannot_express_are_omitted(message: Message) -> None:
    again = type(message)()
    load_proto(dump_proto(message), again)
    assert again == type(message)()
