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
WHOLE = "must be a whole number from -2147483648 to 2147483647"
UNKNOWN = "is not a field of this request"

BODIES: list[tuple[bytes, str]] = [
    (b"[]", "body: must be a JSON object"),
    (b'"x"', "body: must be a JSON object"),
    (b"null", "body: must be a JSON object"),
    (DEEP % (b"[" * 64, b"]" * 64), "body: must not be nested deeper than 64 levels"),
    (b'{"message":1}', "message: must be a string"),
    (b'{"message":["a"]}', "message: must be a string"),
    (b'{"stream":1}', "stream: must be true or false"),
    (b'{"stream":"true"}', "stream: must be true or false"),
    (b'{"deepThink":"1"}', f"deepThink: {WHOLE}"),
    (b'{"deepThink":true}', f"deepThink: {WHOLE}"),
    (b'{"deepThink":1.0}', f"deepThink: {WHOLE}"),
    (b'{"deepThink":1e1}', f"deepThink: {WHOLE}"),
    (b'{"deepThink":2147483648}', f"deepThink: {WHOLE}"),
    (b'{"deepThink":99999999999999999999999999}', f"deepThink: {WHOLE}"),
    (b'{"scene":"x"}', "scene: must be a JSON object"),
    (b'{"scene":[]}', "scene: must be a JSON object"),
    (b'{"scene":{"titel":"x"}}', f"scene.titel: {UNKNOWN}; did you mean 'title'?"),
    (b'{"references":{}}', "references: must be a list"),
    (b'{"references":[{"id":"a"},7]}', "references[1]: must be a JSON object"),
    (b'{"references":[null]}', "references[0]: must be a JSON object"),
    (b'{"references":[{"sizeBytes":"7"}]}', "references[0].sizeBytes: must be a whole number from -92"),
    (b'{"references":[{"id":"a","x: y\\u0000":1}]}', f"references[0].x: y\0: {UNKNOWN}"),
    (b'{"mesage":"a"}', f"mesage: {UNKNOWN}; did you mean 'message'?"),
    (b'{"Message":"a"}', f"Message: {UNKNOWN}; did you mean 'message'?"),
    (b'{"agent_key":"a"}', f"agent_key: {UNKNOWN}; did you mean 'agentKey'?"),
    (b'{"zzzz":"a"}', f"zzzz: {UNKNOWN}"),
    (b'{"":"a"}', f": {UNKNOWN}"),
    ('{"水":"a"}'.encode(), f"水: {UNKNOWN}"),
    (b'{"' + "水".encode() * 100 + b'":1}', f"{'水' * 64}: {UNKNOWN}"),
    (b'{"chatid":1,"zzzz":2}', f"chatid: {UNKNOWN}; did you mean 'chatId'?"),
    (b'{"message":"a","chatId":"../../x"}', "chatId: must be a UUID in lower case"),
    (b'{"message":"a","whenBusy":"later"}', "whenBusy: must be one of reject, enqueue, interrupt, rollback"),
    (b"{}", "message: is required"),
    (b'{"message":"%b"}' % (b"x" * (1 << 20) + b"y"), "message: must not be longer than 1048576 bytes"),
]
"""Of POST /api/query, with how the refusal begins."""

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
    ("/api/tool", "toolName: is required"),
    ("/api/viewport", "viewportKey: is required"),
    ("/api/chat?chatId=x", "chatId: must be a UUID in lower case"),
    (f"/api/chat?chatId={UUID}&includeRawMessages=1", "includeRawMessages: must be true or false"),
    (f"/api/chat?chatId={UUID}" + "&includeRawMessages=true" * 2, "includeRawMessages: must be given once"),
    ("/api/chats?pageSize=x", f"pageSize: {WHOLE}"),
    ("/api/chats?pageSize=%D9%A1", f"pageSize: {WHOLE}"),
    ("/api/chats?pageSize=" + "9" * 50, f"pageSize: {WHOLE}"),
    ("/api/chats?pageSize=", f"pageSize: {WHOLE}"),
    ("/api/chats?pageSize=1&pageSize=2", "pageSize: must be given once"),
    ("/api/chats?pagesize=1", f"pagesize: {UNKNOWN}; did you mean 'pageSize'?"),
    ("/api/chats?pageSize=1.0", f"pageSize: {WHOLE}"),
    ("/api/chats?pageSize=+1", f"pageSize: {WHOLE}"),
    ("/api/chats?pageSize=1e1", f"pageSize: {WHOLE}"),
    ("/api/chats?zz=1&pageSize=x", f"zz: {UNKNOWN}"),
    ("/api/chats?pageSize=x&zz=1", f"pageSize: {WHOLE}"),
    ("/api/chat?chatId=%FF", "query: parameters must be UTF-8"),
    ("/api/chat?chatId=%C0%80", "query: parameters must be UTF-8"),
    ("/api/chats?" + "a=1&" * 700, "query: must not have more than 600 parameters"),
    (f"/api/attach?runId={UUID}&lastSeq=-1", "lastSeq: must be a whole number from 0 to 18446744073709551615"),
    (f"/api/attach?runId={UUID}&lastSeq=18446744073709551616", "lastSeq: must be a whole number from 0 to 184467"),
    ("/api/attach?lastSeq=1", "runId: is required"),
    (f"/api/resource?chatId={UUID}&path=a&length=1", "offset: is said by the header Range"),
    (f"/api/resource?chatId={UUID}", "path: is required"),
    ("/api/agents?tag=" + "x" * 257, "tag: must not be longer than 256 bytes"),
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
        for body, said in BODIES:
            answer = await facades.ask("POST", "/api/query", body)
            assert (answer.status, answer.json["error"]["code"]) == (400, "INVALID_REQUEST"), body
            assert answer.json["msg"].startswith(said), answer.json["msg"]
            assert said.startswith(f"{answer.json['error']['details']['field']}: ")
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
        for path, said in QUERIES:
            answer = await facades.ask("GET", path)
            assert (answer.status, answer.json["error"]["code"]) == (400, "INVALID_REQUEST"), path
            assert answer.json["msg"].startswith(said), answer.json["msg"]


async def test_parameters_are_understood_alike(tmp_path: Path) -> None:
    async with both(tmp_path, Peer([memory_pb2.ListChatsResponse()])) as facades:
        for query in TAKEN_QUERIES:
            assert (await facades.ask("GET", f"/api/chats?{query}")).status == 200, query
            embedded, gateway = facades.peer.heard[-2:]
            assert embedded == gateway, query


@pytest.mark.parametrize(
    ("headers", "said"),
    [
        ([("Content-Type", "text/plain")], "Content-Type: must be application/json"),
        ([("Content-Type", "text/plain; application/json")], "Content-Type: must be application/json"),
        ([("Content-Type", "application/jsonp")], "Content-Type: must be application/json"),
        ([("Content-Type", "")], "Content-Type: must be application/json"),
        ([("Content-Encoding", "identity"), ("Content-Encoding", "identity")], "Content-Encoding: must be given once"),
        ([("Content-Encoding", "gzip")], "Content-Encoding: must be absent; send the body uncompressed"),
        ([("X-Request-Id", "a"), ("X-Request-Id", "b")], "X-Request-Id: must be given once"),
    ],
)
async def test_bad_headers_are_refused_with_the_same_words(tmp_path: Path, headers: Any, said: str) -> None:
    async with both(tmp_path, Peer()) as facades:
        answer = await facades.ask("POST", "/api/query", b'{"message":"a"}', headers)
        assert (answer.status, answer.json["msg"]) == (400, said)
        assert answer.json["error"]["details"]["field"] == said.partition(":")[0]
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
