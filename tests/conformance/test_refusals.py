"""Requests that never reach a service: both facades refuse them with the same status and code, each in its own
words."""

from pathlib import Path

from headrace.v1 import agent_pb2, memory_pb2
from tests.support.facade.both import both
from tests.support.facade.messages import UUID
from tests.support.facade.peers import Peer

BODIES: list[bytes] = [
    b"",
    b"[]",
    b"null",
    b'{"message": nope}',
    b'{"message":"\xff"}',
    b'{"message":"\\ud800"}',
    b'{"message":"a"} x',
    b'{"message":"a","params":%b%b}' % (b"[" * 65, b"]" * 65),
    b'{"message":1}',
    b'{"message":"a","stream":1}',
    b'{"message":"a","deepThink":2147483648}',
    b'{"message":"a","scene":[]}',
    b'{"message":"a","scene":{"titel":"x"}}',
    b'{"message":"a","references":{}}',
    b'{"message":"a","references":[{"id":"a"},7]}',
    b'{"mesage":"a"}',
    b'{"message":"a","chatId":"../../x"}',
    b"{}",
    b'{"message":"%b"}' % (b"x" * (1 << 20) + b"y"),
]
"""Bodies of POST /api/query."""

ACCEPTED: list[bytes] = [
    b' {"message":"a" , "params" : [1, 2] }\n',
    b'{"message":"a","agentKey":null,"params":{"a":"\\ud83e\\udded <&>","b":1e308,"c":12345678901234567890}}',
    b'{"message":"\\ud83e\\udded\\u0000\\"\\\\\\/","references":[],"scene":{}}',
    b'{"message":"a","outputFormat":{"name":"n","schema":{"type" : "object"}}}',
    b'\xef\xbb\xbf{"message":"a"}',
]

QUERIES = [
    "/api/tool",
    "/api/chat?chatId=x",
    f"/api/chat?chatId={UUID}" + "&includeRawMessages=true" * 2,
    "/api/chats?pageSize=x",
    "/api/chats?pagesize=1",
    "/api/chat?chatId=%FF",
    f"/api/attach?runId={UUID}&lastSeq=-1",
    "/api/attach?lastSeq=1",
]

HEADERS: list[list[tuple[str, str]]] = [
    [("Content-Type", "text/plain")],
    [("Content-Type", "text/plain; application/json")],
    [("Content-Type", "")],
    [("Content-Encoding", "gzip")],
]

HTTP: list[tuple[str, str, int]] = [
    ("GET", "/api/nothing", 404),
    ("GET", "/api/agents/", 404),
    ("GET", "//api/agents", 404),
    ("GET", "/api/agents:x", 404),
    ("GET", "/api/query", 405),
    ("HEAD", "/api/agents", 405),
    ("OPTIONS", "/api/resource", 405),
    ("GET", "/healthz", 200),
    ("GET", "/readyz", 200),
    ("GET", "/openapi.json", 200),
]


async def test_an_invalid_request_reaches_no_service(tmp_path: Path) -> None:
    async with both(tmp_path, Peer()) as facades:
        requests = [("POST", "/api/query", body, []) for body in BODIES]
        requests += [("GET", path, None, []) for path in QUERIES]
        requests += [("POST", "/api/query", b'{"message":"a"}', headers) for headers in HEADERS]
        requests.append(("POST", "/api/submit", b'{"payload":1,"params":2}', []))
        for request in requests:
            answer = await facades.ask(*request)
            assert (answer.status, answer.json["error"]["code"]) == (400, "INVALID_REQUEST"), request
        answer = await facades.ask("POST", "/api/query", b" " * ((4 << 20) + 1))
        assert (answer.status, answer.json["error"]["code"]) == (413, "INVALID_REQUEST")
    assert {type(heard).__name__ for heard in facades.peer.heard} == {"GetIdentityRequest"}  # before a large body


async def test_a_valid_request_is_read_the_same_by_both_facades(tmp_path: Path) -> None:
    async with both(tmp_path, Peer([agent_pb2.AgentDelta(seq=1, run_cancel=agent_pb2.RunCancel())])) as facades:
        for body in ACCEPTED:
            assert (await facades.ask("POST", "/api/query", body)).status == 200, body
        facades.peer.replies = [memory_pb2.ListChatsResponse()]
        for query in ("pageSize=007", "&pageSize=1&", "pageToken=a=b+c%20d%E6%B0%B4", ""):
            assert (await facades.ask("GET", f"/api/chats?{query}")).status == 200, query
        requests = facades.peer.heard
    assert requests[::2] == requests[1::2]


async def test_refusals_by_http_have_the_json_envelope(tmp_path: Path) -> None:
    async with both(tmp_path, Peer()) as facades:
        for verb, path, status in HTTP:
            answer = await facades.ask(verb, path, headers={"X-HTTP-Method-Override": "DELETE"})
            assert answer.status == status, (verb, path)
