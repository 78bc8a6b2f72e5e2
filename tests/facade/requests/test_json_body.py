"""Request bodies and query parameters: what is taken, and how each refusal names field and rule."""

from __future__ import annotations

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
SUBMIT: Any = agent_pb2.SubmitRequest.DESCRIPTOR
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
    ("body", "field", "rule"),
    [
        (b"", "body", "JSON"),
        (b"{", "body", "line 1, column 2"),
        (b'{\n "message": nope}', "body", "line 2, column 13"),
        (b'{"message":"\xff"}', "body", "UTF-8"),
        (b'{"message":"\\ud800"}', "body", "surrogate"),
        (b'{"message":"a"} x', "body", "JSON"),
        (b"[]", "body", "must be a JSON object"),
        (b'"x"', "body", "must be a JSON object"),
        (b'{"message":"a","params":' + b"[" * 5000 + b"]" * 5000 + b"}", "body", "depth"),
        (b'{"message":"a","params":' + b"[" * 64 + b"]" * 64 + b"}", "body", "deeper than 64"),
        (b'{"message":1}', "message", "must be a string"),
        (b'{"message":["a"]}', "message", "must be a string"),
        (b'{"stream":1}', "stream", "must be true or false"),
        (b'{"stream":"true"}', "stream", "must be true or false"),
        (b'{"deepThink":"1"}', "deepThink", "must be a whole number"),
        (b'{"deepThink":true}', "deepThink", "must be a whole number"),
        (b'{"deepThink":1.0}', "deepThink", "must be a whole number"),
        (b'{"deepThink":2147483648}', "deepThink", "from -2147483648 to 2147483647"),
        (b'{"scene":"x"}', "scene", "must be a JSON object"),
        (b'{"scene":{"titel":"x"}}', "scene.titel", "did you mean 'title'"),
        (b'{"references":{}}', "references", "must be a list"),
        (b'{"references":[{"id":"a"},7]}', "references[1]", "must be a JSON object"),
        (b'{"references":[{"sizeBytes":"7"}]}', "references[0].sizeBytes", "must be a whole number"),
        (b'{"mesage":"a"}', "mesage", "did you mean 'message'"),
        (b'{"agent_key":"a"}', "agent_key", "did you mean 'agentKey'"),
        (b'{"zzzz":"a"}', "zzzz", "is not a field of this request"),
    ],
    ids=range(26),
)
def test_a_refused_body_names_field_and_rule(body: bytes, field: str, rule: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        decode_body(body, QUERY)
    assert caught.value.metadata["field"] == field
    assert rule in caught.value.metadata["rule"]


def test_an_alias_is_the_field_and_both_together_are_refused() -> None:
    message: Any = decode_body(b'{"params": {"a": 1}}', SUBMIT)
    assert message.payload == '{"a": 1}'
    with pytest.raises(InvalidRequest, match="is the same field as 'payload'"):
        decode_body(b'{"payload":1,"params":2}', SUBMIT)


def test_an_unknown_name_is_not_repeated_at_length() -> None:
    with pytest.raises(InvalidRequest) as caught:
        decode_body(b'{"' + b"x" * 100_000 + b'":1}', QUERY)
    assert len(caught.value.metadata["field"]) == 64


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


@pytest.mark.parametrize(
    ("query", "descriptor", "field", "rule"),
    [
        ("includeRawMessages=1", CHAT, "includeRawMessages", "must be true or false"),
        ("pageSize=x", CHATS, "pageSize", "must be a whole number"),
        ("pageSize=%D9%A1", CHATS, "pageSize", "must be a whole number"),
        ("pageSize=" + "9" * 50, CHATS, "pageSize", "must be a whole number"),
        ("pageSize=", CHATS, "pageSize", "must be a whole number"),
        ("pageSize=1&pageSize=2", CHATS, "pageSize", "must be given once"),
        ("pagesize=1", CHATS, "pagesize", "did you mean 'pageSize'"),
        ("scene=x", QUERY, "scene", "is not a field"),
        ("chatId=%FF", CHAT, "query", "UTF-8"),
        ("a=1&" * 700, CHAT, "query", "more than 600"),
    ],
)
def test_a_refused_parameter_names_field_and_rule(query: str, descriptor: Descriptor, field: str, rule: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        query_string.decode_parameters(query_string.parse_parameters(query), descriptor)
    assert caught.value.metadata["field"] == field
    assert rule in caught.value.metadata["rule"]
