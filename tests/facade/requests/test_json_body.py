"""Request bodies and query parameters: what is taken, and how each refusal names field and rule."""

from typing import Any

import pytest
from google.protobuf.descriptor import Descriptor
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import InvalidRequest
from headrace.v1 import agent_pb2, memory_pb2, tools_pb2
from services.facade.proto_routes import load_routes
from services.facade.requests import query_string
from services.facade.requests.json_body import decode_body, map_fields
from services.runtime.formats.json_form import encode

QUERY: Any = agent_pb2.QueryRequest.DESCRIPTOR
CHATS: Any = memory_pb2.ListChatsRequest.DESCRIPTOR
CHAT: Any = memory_pb2.GetChatRequest.DESCRIPTOR
TOOLS: Any = tools_pb2.ListToolsRequest.DESCRIPTOR


def test_a_whole_query_is_taken() -> None:
    body = (
        b'{"message":"hi\\n","params":{"id": 123456789012345678901234567890},"stream":false,"deepThink":-1,'
        b'"scene":{"url":"u"},"references":[{"id":"a","type":"file","name":"n","sizeBytes":9007199254740993,'
        b'"meta":[1e2]}],"agentKey":null}'
    )
    message: Any = decode_body(body, QUERY)
    assert message.message == "hi\n"
    assert message.params == '{"id": 123456789012345678901234567890}'
    assert (message.HasField("stream"), message.stream, message.deep_think) == (True, False, -1)
    assert message.scene.url == "u"
    assert (message.references[0].size_bytes, message.references[0].meta) == (9007199254740993, "[1e2]")
    assert not message.HasField("agent_key")


@pytest.mark.parametrize(
    ("body", "rule"),
    [
        (b"", "JSON"),
        (b"{", "line 1, column 2"),
        (b'{\n "message": nope}', "line 2, column 13"),
        (b'{"message":"\xff"}', "UTF-8"),
        (b'{"message":"\\ud800"}', "surrogate"),
        (b'{"message":"a"} x', "JSON"),
        (b'{"message":"a","params":' + b"[" * 5000 + b"]" * 5000 + b"}", "depth"),
    ],
    ids=range(7),
)
def test_what_is_no_json_is_refused_with_its_place(body: bytes, rule: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        decode_body(body, QUERY)
    assert caught.value.metadata["field"] == "body"
    assert rule in caught.value.metadata["rule"]


@given(st.text(st.characters(codec="utf-8")))
def test_a_message_survives_decoding_byte_for_byte(text: str) -> None:
    message = agent_pb2.QueryRequest(message=text)
    assert decode_body(encode(message), QUERY) == message


@pytest.mark.parametrize("descriptor", [route.rpc.input_type for route in load_routes()], ids=lambda kind: kind.name)
def test_no_request_has_two_fields_of_one_name(descriptor: Descriptor) -> None:
    by_name = map_fields(descriptor)
    assert {field.name for field in by_name.values()} == {field.name for field in descriptor.fields}


def test_query_parameters_take_the_types_of_their_fields() -> None:
    message: Any = query_string.decode_parameters(
        query_string.parse_parameters("chatId=%E6%B0%B4&includeRawMessages=true"), CHAT
    )
    assert (message.chat_id, message.include_raw_messages) == ("水", True)
    tools: Any = query_string.decode_parameters(query_string.parse_parameters("names=a&names=b"), TOOLS)
    assert list(tools.names) == ["a", "b"]
    page: Any = query_string.decode_parameters(query_string.parse_parameters("pageSize=7&pageToken="), CHATS)
    assert (page.page_size, page.page_token) == (7, "")
