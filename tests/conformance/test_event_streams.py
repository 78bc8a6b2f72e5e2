"""Event streams through each facade: content, errors, disconnects, heartbeats and drain. The orchestrator is scripted,
all sockets are real.
"""

import asyncio
import socket
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import orjson
import pytest

from headrace.errors import CredentialEnded, Overloaded
from headrace.sse import SseFrame
from headrace.v1 import agent_pb2
from tests.support.facade.fronts import DEFAULTS, Front, Timing
from tests.support.facade.scripted import (
    CHAT,
    RUN,
    Script,
    Step,
    Suite,
    answering,
    complete,
    delta,
    opening,
    read_all_frames,
    suite,
    text,
)
from tests.support.facade.slow_readers import make_post
from tests.support.timing import within

PIECES = ["\n\n", " ", "水", "half wo", "rd", "\u2028", '"\\', "\r", "\x00", "🧭"]
ASK: dict[str, Any] = {"message": "hi"}


POST = make_post("/api/query", orjson.dumps(ASK))


@asynccontextmanager
async def querying(
    folder: Path, front: Front, steps: Sequence[Step], timing: Timing = DEFAULTS, **fields: bool
) -> AsyncGenerator[aiohttp.ClientResponse]:
    """Query a run that performs these steps; yield the response."""
    async with (
        suite(folder, Script(query=steps), front=front, timing=timing) as facade,
        facade.http.post("/api/query", json=ASK | fields) as response,
    ):
        yield response


async def _assert_closed_soon(facade: Suite) -> None:
    async with within(0.5):
        await facade.script.closed.wait()


async def _read_one(suite: Suite) -> None:
    """Query, read the first bytes, and leave."""
    async with suite.http.post("/api/query", json=ASK) as response:
        await response.content.readany()
        response.close()


async def test_every_event_is_one_frame_byte_for_byte_and_done_comes_last(tmp_path: Path, front: Front) -> None:
    async with querying(tmp_path, front, answering(*PIECES)) as response:
        assert response.status == 200
        assert response.headers["Content-Type"] == "text/event-stream; charset=utf-8"
        assert response.headers["Cache-Control"] == "no-cache, no-transform"
        assert response.headers["X-Accel-Buffering"] == "no"
        frames = await read_all_frames(response)
    assert frames[-1].data == b"[DONE]"
    events = [orjson.loads(frame.data) for frame in frames[:-1]]
    assert [frame.id for frame in frames[:-1]] == [str(event["seq"]) for event in events]
    assert {frame.event for frame in frames[:-1]} == {"message"}
    assert [event["delta"] for event in events if event["type"] == "content.delta"] == PIECES
    assert events[0]["type"] == "request.query"
    assert events[-1]["type"] == "run.complete"


@pytest.mark.parametrize("event_count", [0, 3])
async def test_the_end_of_the_callers_key_is_sent_as_a_separate_last_frame(
    tmp_path: Path, front: Front, event_count: int
) -> None:
    steps: list[Step] = [*opening()[:event_count], 0.5, CredentialEnded("the API key was revoked; get a new one")]
    timing = Timing(heartbeat_s=0.05)  # the response has started
    async with querying(tmp_path, front, steps, timing) as response:
        assert response.status == 200
        *frames, last = await read_all_frames(response)
    assert [frame.event for frame in frames] == ["message"] * event_count
    assert (last.event, last.id) == ("error", None)
    assert orjson.loads(last.data) == {
        "code": 401,
        "msg": "the API key was revoked; get a new one",
        "data": {},
        "error": {"code": "CREDENTIAL_ENDED", "retriable": False, "details": {}},
    }


@pytest.mark.parametrize("error", [Overloaded("gone"), KeyError("a bug inside")])
async def test_a_stream_that_fails_after_its_first_event_ends_without_done(
    tmp_path: Path, front: Front, error: Exception
) -> None:
    async with querying(tmp_path, front, [*opening(), text(4, "a"), error]) as response:
        frames = await read_all_frames(response)
    assert response.status == 200
    assert [frame.id for frame in frames] == ["1", "2", "3", "4"]


async def test_a_stream_without_a_terminal_event_ends_without_done(tmp_path: Path, front: Front) -> None:
    async with querying(tmp_path, front, opening()) as response:
        assert [frame.id for frame in await read_all_frames(response)] == ["1", "2", "3"]


async def test_leaving_a_silent_stream_cancels_the_call_within_500_ms(tmp_path: Path, front: Front) -> None:
    async with suite(tmp_path, front=front, script=Script(query=[*opening(), asyncio.Event()])) as facade:
        await _read_one(facade)
        await _assert_closed_soon(facade)


async def test_leaving_before_the_first_event_cancels_the_call(tmp_path: Path, front: Front) -> None:
    async with suite(tmp_path, front=front, script=Script(query=[asyncio.Event()])) as facade:
        querying = asyncio.create_task(facade.http.post("/api/query", json=ASK).__aenter__())
        await facade.script.heard.wait()
        querying.cancel()
        await _assert_closed_soon(facade)
        with pytest.raises(asyncio.CancelledError):
            await querying


async def test_a_slow_reader_slows_the_orchestrator_down_and_leaving_cancels_the_call(
    tmp_path: Path, front: Front
) -> None:
    flood = [text(4, "x" * 10_000)] * 10_000
    async with suite(tmp_path, front=front, script=Script(query=[*opening(), *flood])) as facade:
        reader, writer = await asyncio.open_connection("127.0.0.1", int(facade.url.rpartition(":")[2]), limit=1024)
        writer.write(POST)
        await reader.readline()
        sent = -1
        while sent != facade.script.sent:
            sent = facade.script.sent
            await asyncio.sleep(0.3)
        assert 0 < sent < len(flood) // 2
        writer.transport.abort()
        await _assert_closed_soon(facade)


async def test_a_client_that_stops_reading_is_dropped_and_others_are_served(tmp_path: Path, front: Front) -> None:
    flood = [text(4, "x" * 10_000)] * 5_000
    script = Script(query=[*opening(), *flood])
    async with suite(tmp_path, script, front=front, timing=Timing(slow_reader_s=0.5)) as facade:
        reader, writer = await asyncio.open_connection("127.0.0.1", int(facade.url.rpartition(":")[2]), limit=1024)
        writer.write(POST)
        await reader.readline()
        while not script.closed.is_set():
            async with facade.http.get("/api/agents") as response:
                assert response.status == 200
            await asyncio.sleep(0.05)
        assert script.sent < len(flood)
        writer.transport.abort()


async def test_a_client_that_reads_a_large_frame_slowly_receives_all_of_it(tmp_path: Path, front: Front) -> None:
    script = Script(query=answering("x" * (8 << 20)))
    async with suite(tmp_path, script, front=front, timing=Timing(slow_reader_s=2)) as facade:
        with socket.socket() as client:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 16)
            client.connect(("127.0.0.1", int(facade.url.rpartition(":")[2])))
            client.sendall(POST)
            client.setblocking(False)
            received = bytearray()
            async with within(50):
                while b"[DONE]" not in received[-100:]:
                    piece = await asyncio.get_running_loop().sock_recv(client, 1 << 16)
                    assert piece, f"it was cut after {len(received)} bytes"
                    received += piece
                    await asyncio.sleep(
                        0.03
                    )  # 2 MB a second: all of it takes twice as long as a client may read nothing
    assert len(received) > 8 << 20


async def test_a_silent_stream_gets_heartbeats_that_are_not_events(tmp_path: Path, front: Front) -> None:
    go_on = asyncio.Event()
    steps = [*opening(), go_on, *answering()[3:]]
    async with querying(tmp_path, front, steps, Timing(heartbeat_s=0.05)) as response:
        received = b""
        while received.count(b"\n\n: heartbeat\n\n") < 1 or received.count(b": heartbeat\n\n") < 3:
            received += await response.content.readany()
        go_on.set()
        frames = await read_all_frames(response)
    assert frames[-1].data == b"[DONE]"


async def test_headers_are_sent_if_nothing_happens_for_a_heartbeat(tmp_path: Path, front: Front) -> None:
    async with (
        suite(
            tmp_path, front=front, script=Script(attaches=[[asyncio.Event()]]), timing=Timing(heartbeat_s=0.05)
        ) as facade,
        facade.http.get("/api/attach", params={"runId": RUN}) as response,
    ):
        assert response.status == 200
        assert await response.content.readuntil(b"\n\n") == b": heartbeat\n\n"


async def test_attach_prefers_last_event_id_to_last_seq(tmp_path: Path, front: Front) -> None:
    async with suite(tmp_path, front=front, script=Script(attaches=[[complete(9)]])) as facade:
        for parameters in ({"runId": RUN}, {"runId": RUN, "lastSeq": "2"}):
            async with facade.http.get("/api/attach", params=parameters, headers={"Last-Event-ID": "7"}) as response:
                assert [frame.id for frame in await read_all_frames(response)] == ["9", None]
        # event-source-polyfill appends the id to the old address.
        query = {"runId": RUN, "lastSeq": "2", "lastEventId": "7"}
        async with facade.http.get("/api/attach", params=query) as response:
            assert [frame.id for frame in await read_all_frames(response)] == ["9", None]
        assert [request.last_seq for request in facade.script.requests] == [7, 7, 7]
        async with facade.http.get("/api/attach", params={"runId": RUN}, headers={"Last-Event-ID": "x"}) as response:
            assert (await response.json())["error"]["code"] == "INVALID_REQUEST"


async def test_attaching_after_the_last_event_ends_at_once(tmp_path: Path, front: Front) -> None:
    async with (
        suite(tmp_path, front=front, script=Script(attaches=[[]])) as facade,
        facade.http.get("/api/attach", params={"runId": RUN, "lastSeq": "9"}) as response,
    ):
        assert [frame.data for frame in await read_all_frames(response)] == [b"[DONE]"]


async def test_an_event_newer_than_the_facade_is_omitted(tmp_path: Path, front: Front) -> None:
    unknown = agent_pb2.AgentDelta.FromString(delta(4).SerializeToString() + b"\xfa\x7f\x00")
    async with querying(tmp_path, front, [*opening(), unknown, complete(5)]) as response:
        assert [frame.id for frame in await read_all_frames(response)] == ["1", "2", "3", "5", None]


def block(seq: int, block_id: str, piece: str) -> list[agent_pb2.AgentDelta]:
    """Return a part of the response, whose start has the number `seq`."""
    start = agent_pb2.ContentStart(content_id=block_id, run_id=RUN)
    return [
        delta(seq, content_start=start),
        delta(seq + 1, content_delta=agent_pb2.ContentDelta(content_id=block_id, delta=piece)),
    ]


async def test_stream_false_returns_the_run_as_one_response(tmp_path: Path, front: Front) -> None:
    steps = answering("draft")[:-1]
    steps += [
        delta(10, tool_start=agent_pb2.ToolStart(tool_id="t", run_id=RUN)),
        delta(11, tool_result=agent_pb2.ToolResult(tool_id="t", result="20°", ok=True)),
        *block(12, "kept", "It is "),
        *block(14, "lost", "It was "),
        delta(16, attempt_reset=agent_pb2.AttemptReset(run_id=RUN, from_seq=13, reason="retry")),
        delta(17, subagent_id="subagent-1", content_start=agent_pb2.ContentStart(content_id="s", run_id=RUN)),
        delta(18, subagent_id="subagent-1", content_delta=agent_pb2.ContentDelta(content_id="s", delta="aside")),
        *block(19, "again", "20°"),
        complete(21),
    ]
    async with querying(tmp_path, front, steps, stream=False) as response:
        assert (await response.json())["data"] == {
            "runId": RUN,
            "chatId": CHAT,
            "content": "It is 20°",
            "finishReason": "stop",
            "usage": {"inputTokens": 12, "outputTokens": 5, "modelCalls": 2, "toolCalls": 1},
        }


@pytest.mark.parametrize(
    ("last", "status", "reason"),
    [([delta(4, run_cancel=agent_pb2.RunCancel(run_id=RUN))], 499, "CANCELLED"), ([], 409, "INTERRUPTED")],
)
async def test_stream_false_reports_a_run_without_a_response(
    tmp_path: Path, front: Front, last: list[agent_pb2.AgentDelta], status: int, reason: str
) -> None:
    async with querying(tmp_path, front, [*opening(), *last], stream=False) as response:
        assert (response.status, (await response.json())["error"]["code"]) == (status, reason)


async def test_a_stopping_facade_lets_an_open_stream_end(tmp_path: Path, front: Front) -> None:
    go_on = asyncio.Event()
    async with aiohttp.ClientSession() as http:
        async with suite(
            tmp_path, front=front, script=Script(query=[*opening(), go_on, complete(4)]), timing=Timing(drain_s=5)
        ) as facade:
            response = await http.post(f"{facade.url}/api/query", json=ASK)
            asyncio.get_running_loop().call_later(0.8, go_on.set)
        assert [frame.id for frame in await read_all_frames(response)] == ["1", "2", "3", "4", None]


async def test_a_stopping_facade_cuts_a_stream_that_outlasts_the_drain(tmp_path: Path, front: Front) -> None:
    async with aiohttp.ClientSession() as http:
        async with suite(
            tmp_path, front=front, script=Script(query=[*opening(), asyncio.Event()]), timing=Timing(drain_s=0.1)
        ) as facade:
            response = await http.post(f"{facade.url}/api/query", json=ASK)
            await response.content.readany()
        with pytest.raises(aiohttp.ClientPayloadError):
            await response.read()
    await _assert_closed_soon(facade)


async def test_forty_streams_at_once_are_each_byte_exact(tmp_path: Path, front: Front) -> None:
    steps: list[Step] = []
    for step in answering(*PIECES * 20):
        steps += [step, 0.001]
    async with suite(tmp_path, Script(query=steps), front=front) as facade:
        connector = aiohttp.TCPConnector(limit=0)
        async with aiohttp.ClientSession(facade.url, connector=connector) as http:

            async def ask() -> list[SseFrame]:
                async with http.post("/api/query", json=ASK) as response:
                    return await read_all_frames(response)

            answers = await asyncio.gather(*(ask() for _ in range(40)))
    events = [orjson.loads(frame.data) for frame in answers[0][:-1]]
    assert [event["delta"] for event in events if event["type"] == "content.delta"] == PIECES * 20
    assert all(frames == answers[0] for frames in answers)


async def test_a_connection_can_be_used_again_after_a_stream(tmp_path: Path, front: Front) -> None:
    steps = [*opening(), 0.3, complete(4)]
    async with suite(tmp_path, Script(query=steps), front=front, timing=Timing(0.1, 0.2)) as facade:
        connector = aiohttp.TCPConnector(limit=1)
        async with aiohttp.ClientSession(facade.url, connector=connector) as http:
            for _ in range(2):
                async with http.post("/api/query", json=ASK) as response:
                    assert (await read_all_frames(response))[-1].data == b"[DONE]"
                await asyncio.sleep(0.3)
                async with http.get("/api/agents") as response:
                    assert response.status == 200


async def test_open_streams_and_ended_requests_are_counted(tmp_path: Path, front: Front) -> None:
    async def read() -> list[str]:
        async with facade.http.get(facade.url.metrics) as metrics:
            return (await metrics.text()).splitlines()

    def is_open(lines: list[str], count: int) -> bool:
        return not {f"headrace_facade_open_streams {count}", f"headrace_facade_open_streams {count}.0"}.isdisjoint(
            lines
        )

    async with suite(tmp_path, Script(query=[*opening(), asyncio.Event()]), front=front) as facade:
        for path in ("/api/agents", "/private-path"):
            await (await facade.http.get(path)).read()
        async with facade.http.post("/api/query", json=ASK) as response:
            await response.content.readany()
            lines = await read()
            async with facade.http.get("/metrics") as public:
                assert public.status == 404
            response.close()
        async with within(2):
            while not is_open(await read(), 0):
                await asyncio.sleep(0.02)
    assert is_open(lines, 1)
    ended = [line for line in lines if line.startswith("headrace_facade_request_duration_seconds_count{")]
    for labels in ('route="/api/agents",status="200"', 'status="404"'):
        assert any(labels in line for line in ended)
    assert "private-path" not in str(lines)
