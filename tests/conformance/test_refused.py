"""What never reaches a service: both facades refuse it with the same status, field and rule."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from headrace.v1 import agent_pb2, memory_pb2
from tests.support.facade.both import both
from tests.support.facade.messages import UUID
from tests.support.facade.peers import Peer

DEEP = b'{"message":"a","params":%b%b}'
BODIES: list[bytes] = [
    b"[]",
    b'"x"',
    b"null",
    DEEP % (b"[" * 64, b"]" * 64),
    b'{"message":1}',
    b'{"message":["a"]}',
    b'{"stream":1}',
    b'{"stream":"true"}',
    b'{"deepThink":"1"}',
    b'{"deepThink":true}',
    b'{"deepThink":1.0}',
    b'{"deepThink":1e1}',
    b'{"deepThink":2147483648}',
    b'{"deepThink":99999999999999999999999999}',
    b'{"scene":"x"}',
    b'{"scene":[]}',
    b'{"scene":{"titel":"x"}}',
    b'{"references":{}}',
    b'{"references":[{"id":"a"},7]}',
    b'{"references":[null]}',
    b'{"references":[{"sizeBytes":"7"}]}',
    b'{"references":[{"id":"a","x: y\\u0000":1}]}',
    b'{"mesage":"a"}',
    b'{"Message":"a"}',
    b'{"agent_key":"a"}',
    b'{"zzzz":"a"}',
    b'{"":"a"}',
    '{"水":"a"}'.encode(),
    b'{"' + "水".encode() * 100 + b'":1}',
    b'{"chatid":1,"zzzz":2}',
    b'{"message":"a","chatId":"../../x"}',
    b'{"message":"a","whenBusy":"later"}',
    b"{}",
    b'{"message":"%b"}' % (b"x" * (1 << 20) + b"y"),
]
"""Of POST /api/query."""

TAKEN: list[bytes] = [
    b' {"message":"a" , "params" : [1, 2] }\n',
    b'{"message":"a","message":"b","agentKey":null}',
    b'{"message":"a","params":{"a":"\\ud83e\\udded","b":1e308}}',
    b'{"message":"\\ud83e\\udded\\u0000\\"\\\\\\/","deepThink":-0}',
    b'{"message":"a","params":{"a":"\\\\ud800"},"references":[],"scene":{}}',
    DEEP % (b"[" * 63, b"]" * 63),
]

NO_JSON: list[bytes] = [
    b"",
    b" ",
    b"{",
    b'{"message": nope}',
    b'{"message":"\xff"}',
    b'{"message":"\\ud800"}',
    b'{"message":"\\udc00\\ud800"}',
    b'{"message":"a"} x',
    b'{"message":"a"}{}',
    b"\xef\xbb\xbf{}",
    b'{"message":"a",}',
    b'{"deepThink":01}',
    b'{"deepThink":NaN}',
    b'{"message":"a\nb"}',
    b'{"message":"a","params":1e400}',
]

QUERIES = [
    "/api/tool",
    "/api/chat?chatId=x",
    f"/api/chat?chatId={UUID}&includeRawMessages=1",
    f"/api/chat?chatId={UUID}&includeRawMessages=true&includeRawMessages=true",
    "/api/chats?pageSize=x",
    "/api/chats?pageSize=%D9%A1",
    "/api/chats?pageSize=" + "9" * 50,
    "/api/chats?pageSize=",
    "/api/chats?pageSize=1&pageSize=2",
    "/api/chats?pagesize=1",
    "/api/chats?pageSize=1.0",
    "/api/chats?pageSize=+1",
    "/api/chats?pageSize=1e1",
    "/api/chats?zz=1&pageSize=x",
    "/api/chats?pageSize=x&zz=1",
    "/api/chat?chatId=%FF",
    "/api/chat?chatId=%C0%80",
    "/api/chats?" + "a=1&" * 700,
    f"/api/attach?runId={UUID}&lastSeq=-1",
    f"/api/attach?runId={UUID}&lastSeq=18446744073709551616",
    "/api/attach?lastSeq=1",
    f"/api/resource?chatId={UUID}&path=a&length=1",
    f"/api/resource?chatId={UUID}",
    "/api/agents?tag=" + "x" * 257,
]

TAKEN_QUERIES = ["pageSize=007", "pageSize=-0", "&pageSize=1&", "pageToken=a;b", "pageToken=%zz%", "pageToken=a=b", ""]

HTTP: list[tuple[str, str, int]] = [
    ("GET", "/api/nothing", 404),
    ("GET", "/api/agents/", 404),
    ("GET", "//api/agents", 404),
    ("GET", "/api/../api/nothing", 404),
    ("GET", "/api/agents:x", 404),
    ("GET", "/api/query", 405),
    ("POST", "/api/agents", 405),
    ("HEAD", "/api/agents", 405),
    ("PUT", "/api/chat", 405),
    ("OPTIONS", "/api/resource", 405),
    ("POST", "/healthz", 405),
    ("GET", "/healthz", 200),
    ("HEAD", "/healthz", 200),
    ("GET", "/readyz", 200),
]


async def test_a_bad_body_is_refused_with_the_same_words(tmp_path: Path) -> None:
    async with both(tmp_path, Peer()) as facades:
        for body in BODIES:
            answer = await facades.ask("POST", "/api/query", body)
            assert (answer.status, answer.json["error"]["code"]) == (400, "INVALID_REQUEST"), body
        answer = await facades.ask("POST", "/api/submit", b'{"payload":1,"params":2}')
        assert answer.json["msg"] == "params: is the same field as 'payload'; give one of them"
    assert not facades.peer.heard


async def test_what_is_no_json_is_refused(tmp_path: Path) -> None:
    """The embedded facade says more: its parser's words and the place."""
    async with both(tmp_path, Peer()) as facades:
        for body in NO_JSON:
            answers = [await facades.one(http, "POST", "/api/query", body, ()) for http in facades.sessions.values()]
            for answer in answers:
                assert (answer.status, answer.json["error"]["details"]["field"]) == (400, "body"), body
                assert answer.json["msg"].startswith("body: must be valid JSON in UTF-8")
    assert not facades.peer.heard


async def test_what_is_allowed_is_understood_alike(tmp_path: Path) -> None:
    async with both(tmp_path, Peer([agent_pb2.AgentDelta(seq=1, run_cancel=agent_pb2.RunCancel())])) as facades:
        for body in TAKEN:
            assert (await facades.ask("POST", "/api/query", body)).status == 200, body
            embedded, gateway = facades.peer.heard[-2:]
            assert embedded == gateway, body


async def test_bad_parameters_are_refused_with_the_same_words(tmp_path: Path) -> None:
    async with both(tmp_path, Peer()) as facades:
        for path in QUERIES:
            answer = await facades.ask("GET", path)
            assert (answer.status, answer.json["error"]["code"]) == (400, "INVALID_REQUEST"), path


async def test_parameters_are_understood_alike(tmp_path: Path) -> None:
    async with both(tmp_path, Peer([memory_pb2.ListChatsResponse()])) as facades:
        for query in TAKEN_QUERIES:
            assert (await facades.ask("GET", f"/api/chats?{query}")).status == 200, query
            embedded, gateway = facades.peer.heard[-2:]
            assert embedded == gateway, query


@pytest.mark.parametrize(
    ("headers", "field"),
    [
        ([("Content-Type", "text/plain")], "Content-Type"),
        ([("Content-Type", "text/plain; application/json")], "Content-Type"),
        ([("Content-Type", "application/jsonp")], "Content-Type"),
        ([("Content-Type", "")], "Content-Type"),
        ([("Content-Encoding", "identity"), ("Content-Encoding", "identity")], "Content-Encoding"),
        ([("Content-Encoding", "gzip")], "Content-Encoding"),
        ([("X-Request-Id", "a"), ("X-Request-Id", "b")], "X-Request-Id"),
    ],
)
async def test_bad_headers_are_refused_with_the_same_words(tmp_path: Path, headers: Any, field: str) -> None:
    async with both(tmp_path, Peer()) as facades:
        answer = await facades.ask("POST", "/api/query", b'{"message":"a"}', headers)
        assert answer.json["error"]["details"]["field"] == field
        answer = await facades.ask("POST", "/api/query?stream=false", b'{"message":"a"}')
        assert answer.json["msg"] == "stream: belongs into the JSON body"


async def test_what_http_refuses_is_in_the_envelope(tmp_path: Path) -> None:
    async with both(tmp_path, Peer()) as facades:
        for verb, path, status in HTTP:
            answer = await facades.ask(verb, path, headers={"X-HTTP-Method-Override": "DELETE"})
            assert answer.status == status, (verb, path)
            assert verb == "HEAD" or answer.json["code"] == (0 if status == 200 else status)


async def test_a_body_over_4_mib_is_413(tmp_path: Path) -> None:
    async with both(tmp_path, Peer()) as facades:
        answer = await facades.ask("POST", "/api/query", b" " * ((4 << 20) + 1))
        assert (answer.status, answer.json["error"]["code"]) == (413, "INVALID_REQUEST")
        assert answer.json["error"]["details"] == {"field": "body", "rule": "must not be larger than 4194304 bytes"}
