"""The JSON form of every message, compared with the descriptors."""

import json

import orjson
import pytest
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message_factory import GetMessageClass
from hypothesis import given
from hypothesis import strategies as st

from headrace.v1 import agent_pb2, common_pb2, llm_pb2, memory_pb2, tools_pb2
from services.facade.proto_routes import load_routes
from services.runtime.formats.json_form import encode, event, split
from tests.support.messages import PAYLOADS, filled


@pytest.mark.parametrize("field", PAYLOADS, ids=lambda field: field.name)
def test_every_event_is_one_flat_object_in_the_order_of_the_proto(field: FieldDescriptor) -> None:
    kind = field.message_type
    assert kind is not None
    delta = agent_pb2.AgentDelta(seq=7, timestamp=8, subagent_id="s", task_id="t")
    getattr(delta, field.name).CopyFrom(filled(kind))
    sent = event(delta)
    assert sent is not None
    names = [name for name, _ in read_pairs(sent.json)]
    own = [inner.json_name for inner in kind.fields]
    assert not {"seq", "type", "timestamp"} & set(own)
    envelope = [name for name in ("subagentId", "taskId") if name not in own]
    assert names == ["seq", "type", *own, *envelope, "timestamp"]
    assert orjson.loads(sent.json)["type"] == field.name.replace("_", ".", 1)
    assert sent.is_terminal == (field.name in ("run_complete", "run_cancel", "run_error"))
    assert b"null" not in sent.json
    assert b"\n" not in sent.json


def read_pairs(text: bytes) -> list[tuple[str, object]]:
    """Return the members of an object in order, including repeated ones."""
    return json.loads(text, object_pairs_hook=list)


@given(st.text(), st.integers(0, 2**64 - 1), st.integers(-(2**63), 2**63 - 1))
def test_strings_and_64_bit_numbers_are_kept_exactly(text: str, seq: int, timestamp: int) -> None:
    delta = agent_pb2.AgentDelta(seq=seq, timestamp=timestamp)
    delta.content_delta.content_id, delta.content_delta.delta = "c", text
    sent = event(delta)
    assert sent is not None
    assert orjson.loads(sent.json) == {
        "seq": seq,
        "type": "content.delta",
        "contentId": "c",
        "delta": text,
        "timestamp": timestamp,
    }


def test_json_text_is_embedded_unchanged_on_one_line() -> None:
    params = '{\n "big": 123456789012345678901234567890,\r\n "z": 1.50}'
    message = agent_pb2.ToolEnd(tool_id="t", tool_params=params)
    assert encode(message) == b'{"toolId":"t","toolParams":{  "big": 123456789012345678901234567890,   "z": 1.50}}'


def test_absent_optional_fields_are_omitted_and_plain_ones_always_written() -> None:
    assert encode(common_pb2.Usage()) == b'{"inputTokens":0,"outputTokens":0,"modelCalls":0,"toolCalls":0}'
    assert encode(common_pb2.Usage(cached_tokens=0, estimated=False)).endswith(
        b'"cachedTokens":0,"modelCalls":0,"toolCalls":0,"estimated":false}'
    )
    assert encode(agent_pb2.ToolEnd(tool_id="t", tool_params="")) == b'{"toolId":"t"}'


def test_empty_lists_are_written_unless_the_rules_say_otherwise() -> None:
    assert encode(agent_pb2.PlanCreate(plan_id="p")) == b'{"planId":"p","chatId":"","plan":[]}'
    assert encode(agent_pb2.TaskComplete(task_id="t")) == b'{"taskId":"t"}'
    assert encode(agent_pb2.TaskComplete(task_id="t", artifact_ids=["a"])) == b'{"taskId":"t","artifactIds":["a"]}'


def test_bytes_are_base64() -> None:
    assert orjson.loads(encode(memory_pb2.GetBlobResponse(data=b"\x00\xff")))["data"] == "AP8="


def test_split_returns_one_field_and_the_others() -> None:
    page = memory_pb2.ListChatsResponse(next_page_token="p2")
    assert split(page, "chats") == (b"[]", b'"nextPageToken":"p2"')
    assert split(agent_pb2.GetRunResponse(), "run")[1] == b""


@pytest.mark.parametrize(
    "descriptor",
    [route.rpc.output_type for route in load_routes()] + [llm_pb2.LlmDelta.DESCRIPTOR, tools_pb2.ToolDelta.DESCRIPTOR],
    ids=lambda descriptor: descriptor.name,
)
def test_every_response_of_the_contract_can_be_encoded(descriptor: Descriptor) -> None:
    assert orjson.loads(encode(GetMessageClass(descriptor)())) is not None
    assert b"null" not in encode(filled(descriptor))
