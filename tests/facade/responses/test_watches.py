"""Watch streams over HTTP; the orchestrator is scripted, all sockets are real."""

import asyncio
import json
from pathlib import Path
from typing import Any

import aiohttp
import orjson
import pytest

from headrace.errors import CredentialEnded, Overloaded, PermissionDenied
from headrace.event_json import parse_event
from headrace.sse import SseReader
from headrace.v1 import agent_pb2, gates_pb2
from tests.support.facade.fronts import Timing
from tests.support.facade.messages import fill_message
from tests.support.facade.scripted import GATE, RUN, Script, answering, delta, suite
from tests.support.timing import within

News = gates_pb2.WatchGatesResponse

BEGIN, ROW, END = News(list_begin={}), News(gate=GATE), News(list_end={})  # pyright: ignore[reportArgumentType] - a dict is a message to protobuf

PATH = "/api/gates/watch"
CHAT = "11111111-1111-4111-8111-111111111111"


async def read(response: aiohttp.ClientResponse, count: int) -> list[Any]:
    """Read at least `count` frames and return each with its event, id and JSON data."""
    reader, found = SseReader(), list[Any]()
    async for chunk in response.content.iter_any():
        found += [(frame.event, frame.id, orjson.loads(frame.data)) for frame in reader.feed(chunk)]
        if len(found) >= count:
            break
    return found


async def test_each_message_is_sent_as_one_frame(tmp_path: Path) -> None:
    full = News(gate=fill_message(gates_pb2.Gate.DESCRIPTOR))
    script = Script(gate_news=[BEGIN, ROW, END, full])
    async with suite(tmp_path, script) as facade:
        where = {"scope": "own", "agentKey": "clerk", "kind": "approval", "risk": "high"}
        async with facade.http.get(PATH, params=where) as response:
            assert response.status == 200
            assert response.headers["Content-Type"] == "text/event-stream; charset=utf-8"
            frames = await read(response, 4)
        assert [kind for kind, *_ in frames] == ["message"] * 4
        assert [name for _, name, _ in frames] == [None] * 4
        data = [news for *_, news in frames]
        assert (data[0], data[2]) == ({"listBegin": {}}, {"listEnd": {}})
        assert (data[1]["gate"]["gateId"], data[1]["gate"]["state"]) == (GATE.gate_id, "open")
        assert data[3]["gate"]["arguments"]["list"][0] == 100.0
        [request] = script.requests
        assert request == gates_pb2.WatchGatesRequest(scope="own", agent_key="clerk", kind="approval", risk="high")
        async with within(0.5):  # who leaves ends the call
            await script.closed.wait()


@pytest.mark.parametrize("cursor", ["", "3.1"])
async def test_an_event_of_a_followed_chat_has_its_cursor_as_id(tmp_path: Path, cursor: str) -> None:
    delta = agent_pb2.AgentDelta(seq=2, content_delta=agent_pb2.ContentDelta(content_id="c", delta="Hi"))
    script = Script(follows=[[agent_pb2.FollowDelta(cursor="3.2", run_id="r", delta=delta)]])
    async with suite(tmp_path, script) as facade:
        where, headers = {"chatId": CHAT, "cursor": "1.9"}, {"Last-Event-ID": cursor} if cursor else {}
        async with facade.http.get("/api/follow", params=where, headers=headers) as response:
            [(kind, cursor_told, data)] = await read(response, 1)
        assert (kind, cursor_told, data["cursor"], data["runId"]) == ("message", "3.2", "3.2", "r")
        assert data["delta"] == {"seq": 2, "type": "content.delta", "contentId": "c", "delta": "Hi", "timestamp": 0}
        assert script.requests == [agent_pb2.FollowRequest(chat_id=CHAT, cursor=cursor or "1.9")]


async def test_expiry_of_the_callers_key_is_reported_in_a_last_frame(tmp_path: Path) -> None:
    script = Script(gate_news=[BEGIN, CredentialEnded("the API key has expired; get a new one")])
    async with suite(tmp_path, script) as facade, facade.http.get(PATH) as response:
        _, (kind, _, failure) = await read(response, 2)
    assert (kind, failure["error"]["code"]) == ("error", "CREDENTIAL_ENDED")


async def test_a_refusal_is_an_http_error_with_its_status(tmp_path: Path) -> None:
    script = Script(gate_news=[PermissionDenied("the scope operate is needed")])
    async with suite(tmp_path, script) as facade:
        async with facade.http.get(PATH, params={"scope": "tenant"}) as response:
            assert (response.status, (await response.json())["error"]["code"]) == (403, "PERMISSION_DENIED")
        async with facade.http.get(PATH, params={"kind": "riddle"}) as response:
            assert (response.status, (await response.json())["error"]["code"]) == (400, "INVALID_REQUEST")


@pytest.mark.parametrize("error", [None, Overloaded("the store is away")])
async def test_a_started_stream_ends_with_its_call(tmp_path: Path, error: Overloaded | None) -> None:
    script = Script(gate_news=[BEGIN, END, *([error] if error else [])], waits_for_gates=False)
    async with suite(tmp_path, script) as facade, facade.http.get(PATH) as response:
        try:
            data = await response.read()
        except aiohttp.ClientPayloadError:  # it may be cut, where it did not end well
            assert error is not None
            return
        assert data.count(b"data:") == 2


async def test_a_silent_stream_sends_heartbeats(tmp_path: Path) -> None:
    timing = Timing(heartbeat_s=0.1)
    async with suite(tmp_path, Script(), timing=timing) as facade, facade.http.get(PATH) as response:
        async with asyncio.timeout(60):
            assert await response.content.readline() == b": heartbeat\n"


async def test_a_stopping_facade_does_not_wait_for_watches(tmp_path: Path) -> None:
    script = Script(gate_news=[BEGIN, END])
    async with aiohttp.ClientSession() as http:
        async with suite(tmp_path, script, timing=Timing(drain_s=300)) as facade:
            response = await http.get(facade.url + PATH)
            assert len(await read(response, 2)) == 2
        async with asyncio.timeout(60):
            assert b"data:" not in await response.read()
        response.close()


CASES: list[dict[str, Any]] = json.loads((Path(__file__).parents[2] / "fold_cases.json").read_text())
ANSWERED = [case for case in CASES if (case["state"]["end"] or {}).get("type") == "run.complete"]


@pytest.mark.parametrize("case", ANSWERED, ids=[case["name"] for case in ANSWERED])
async def test_the_content_is_the_answer_of_the_case(case: dict[str, Any], tmp_path: Path) -> None:
    events = [parse_event(json.dumps(event, ensure_ascii=False)) for event in case["events"]]
    async with (
        suite(tmp_path, script=Script(query=events)) as facade,
        facade.http.post("/api/query", json={"message": "Hello?", "stream": False}) as response,
    ):
        state = case["state"]
        data = (await response.json())["data"]
        assert (data["runId"], data["chatId"], data["content"]) == (state["runId"], state["chatId"], state["answer"])


async def test_a_structured_answer_is_requested_and_returned_as_json(tmp_path: Path) -> None:
    schema = {"type": "object", "properties": {"at": {"const": 0.1}}}
    end = agent_pb2.RunComplete(run_id=RUN, finish_reason="stop", output='{"at": 0.1}')
    steps = [*answering('{"at": 0.1}')[:-1], delta(9, run_complete=end)]
    query = {"message": "Where?", "outputFormat": {"schema": schema, "name": "place"}, "toolChoice": "none"}
    async with suite(tmp_path, script=Script(query=steps)) as facade:
        async with facade.http.post("/api/query", json=query | {"stream": False}) as response:
            data = (await response.json())["data"]
        async with facade.http.post("/api/query", json=query) as response:
            frames = (await response.text()).split("\n\n")
        requests = facade.script.requests
    assert data["output"] == {"at": 0.1}
    assert '"output":{"at": 0.1}' in next(frame for frame in frames if "run.complete" in frame)
    for request in requests:
        assert json.loads(request.output_format.schema) == schema
        assert (request.output_format.name, request.tool_choice) == ("place", "none")
