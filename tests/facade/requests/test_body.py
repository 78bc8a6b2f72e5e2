"""Malformed HTTP over real sockets: the caller gets an error, and the log one INFO line without its content."""

import asyncio
import gzip
import zlib
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from google.protobuf.descriptor import Descriptor
from hypothesis import given
from hypothesis import strategies as st
from structlog.testing import capture_logs

from headrace.errors import InvalidRequest
from headrace.v1 import agent_pb2, memory_pb2, tools_pb2
from services.facade.proto_routes import load_routes
from services.facade.requests import body, query_string
from services.facade.requests.json_body import decode_body, map_fields
from services.runtime.formats.json_form import encode
from tests.support.facade.scripted import Script, answering, suite
from tests.support.raw_http import say

POST = b"POST /api/query HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: application/json\r\n"


@pytest.mark.parametrize("coding", ["gzip", "deflate", "br", "wurst"])
async def test_a_compressed_body_is_refused_by_its_header(tmp_path: Path, coding: str) -> None:
    bodies = {"gzip": gzip.compress(b'{"message":"a"}'), "deflate": zlib.compress(b'{"message":"a"}')}
    body = bodies.get(coding, b"no such thing")
    with capture_logs() as lines:
        async with suite(tmp_path, Script(query=answering())) as facade:
            head = b"Content-Encoding: %b\r\nContent-Length: %d\r\n\r\n" % (coding.encode(), len(body))
            answer = await say(facade.url, POST + head + body)
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert b'"Content-Encoding: must be absent; send the body uncompressed"' in answer
    assert not [line for line in lines if line["log_level"] == "error"]


@pytest.mark.parametrize(
    "sent",
    [
        pytest.param(POST + b"Transfer-Encoding: chunked\r\n\r\nsecret\r\n", id="chunk size that is none"),
        pytest.param(POST + b"Content-Length: -5 secret\r\n\r\n", id="negative length"),
        pytest.param(POST + b"X-Much: " + b"secret" * 4000 + b"\r\n\r\n", id="long header"),
        pytest.param(
            b"GET /api/agents?tag=" + b"secret" * 2000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n", id="long URL"
        ),
        pytest.param(b"GET /secret HTTP/1.1\r\n\r\n", id="no host"),
    ],
)
async def test_malformed_http_is_400_and_one_info_line_without_its_bytes(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, sent: bytes
) -> None:
    with capture_logs() as lines:
        async with suite(tmp_path, Script(query=answering())) as facade:
            answer = await say(facade.url, sent)
            async with facade.http.get("/healthz") as response:
                assert response.status == 200
    assert answer.split(b" ")[1] == b"400", answer
    (refused,) = [line for line in lines if line["event"] == "http refused"]
    assert refused["log_level"] == "info"
    assert "secret" not in caplog.text + str(lines)


@pytest.mark.parametrize(
    "sent",
    [
        pytest.param(POST + b"Content-Length: 9\r\n\r\n{", id="never complete"),
        pytest.param(POST + b"Transfer-Encoding: chunked\r\n\r\n1\r\n{\r\n", id="never another chunk"),
    ],
)
async def test_an_incomplete_body_times_out_with_408(sent: bytes) -> None:
    async def answer(request: web.Request) -> web.Response:
        return web.Response(body=await body.read_raw_body(request, timeout_s=0.1))

    application = web.Application()
    application.router.add_post("/api/query", answer)
    runner = web.AppRunner(application, access_log=None, lingering_time=0)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        async with asyncio.timeout(50):
            assert (await say(f"http://127.0.0.1:{runner.addresses[0][1]}", sent)).startswith(b"HTTP/1.1 408 ")
    finally:
        await runner.cleanup()


QUERY: Any = agent_pb2.QueryRequest.DESCRIPTOR
CHATS: Any = memory_pb2.ListChatsRequest.DESCRIPTOR
CHAT: Any = memory_pb2.GetChatRequest.DESCRIPTOR
TOOLS: Any = tools_pb2.ListToolsRequest.DESCRIPTOR


def test_a_query_with_all_kinds_of_fields_is_decoded() -> None:
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
def test_invalid_json_is_refused_with_its_position(body: bytes, rule: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        decode_body(body, QUERY)
    assert caught.value.metadata["field"] == "body"
    assert rule in caught.value.metadata["rule"]


@given(st.text(st.characters(codec="utf-8")))
def test_a_message_survives_decoding_byte_for_byte(text: str) -> None:
    message = agent_pb2.QueryRequest(message=text)
    assert decode_body(encode(message), QUERY) == message


@pytest.mark.parametrize("descriptor", [route.rpc.input_type for route in load_routes()], ids=lambda kind: kind.name)
def test_no_request_has_two_fields_with_the_same_name(descriptor: Descriptor) -> None:
    by_name = map_fields(descriptor)
    assert {field.name for field in by_name.values()} == {field.name for field in descriptor.fields}


def test_query_parameters_are_decoded_to_their_fields_types() -> None:
    message: Any = query_string.decode_parameters(
        query_string.parse_parameters("chatId=%E6%B0%B4&includeRawMessages=true"), CHAT
    )
    assert (message.chat_id, message.include_raw_messages) == ("水", True)
    tools: Any = query_string.decode_parameters(query_string.parse_parameters("names=a&names=b"), TOOLS)
    assert list(tools.names) == ["a", "b"]
    page: Any = query_string.decode_parameters(query_string.parse_parameters("pageSize=7&pageToken="), CHATS)
    assert (page.page_size, page.page_token) == (7, "")
