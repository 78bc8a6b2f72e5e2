"""Clients that stop reading, over real sockets: what is buffered, when they are disconnected, what others notice."""

import asyncio
from pathlib import Path

import pytest
import structlog

from tests.support.facade.fronts import Timing
from tests.support.facade.scripted import CHAT, Script, answering, opening, read_all_frames, suite, text
from tests.support.facade.slow_readers import PIECE_BYTES, Endless, make_post, stalled_client
from tests.support.timing import within

ASK = make_post("/api/query", b'{"message":"a"}')
SAID = b'"messages":[{"id":"u","role":"user","content":"a"}]'
STREAM_BYTES_MAX = 8 << 20


async def test_little_is_buffered_for_a_stalled_client_and_others_continue(tmp_path: Path) -> None:
    async with suite(tmp_path, Script(query=Endless())) as facade:
        with stalled_client(facade.url, ASK):
            await facade.script.heard.wait()
            sent = -1
            while sent != facade.script.sent:
                sent = facade.script.sent
                await asyncio.sleep(0.3)
            assert sent * PIECE_BYTES < STREAM_BYTES_MAX
            facade.script.query = answering("x")
            async with within(1), facade.http.post("/api/query", json={"message": "b"}) as response:
                assert (await read_all_frames(response))[-1].data == b"[DONE]"


@pytest.mark.parametrize(
    "sent",
    [
        ASK,
        make_post("/v1/chat/completions", b'{"model":"helper","stream":true,%b}' % SAID),
        make_post("/agui/helper", b'{"threadId":"t","runId":"r",%b}' % SAID),
    ],
    ids=["events", "chat completions", "AG-UI"],
)
async def test_a_stalled_streaming_client_is_disconnected(tmp_path: Path, sent: bytes) -> None:
    script = Script(query=Endless(), publish=["ag-ui"])
    async with suite(tmp_path, script, timing=Timing(slow_reader_s=0.5)) as facade:
        with stalled_client(facade.url, sent):
            await facade.script.heard.wait()
            async with asyncio.timeout(50):
                await facade.script.closed.wait()
        # What leaving means for the run is the query's to say; nothing said: it goes on.
        assert sent is not ASK or not facade.script.cancelled.is_set()


async def test_a_client_waiting_for_a_silent_run_is_not_disconnected(tmp_path: Path) -> None:
    script = Script(query=[*opening(), 1.0, *answering("x")[3:]])
    async with (
        suite(tmp_path, script, timing=Timing(slow_reader_s=0.2)) as facade,
        facade.http.post("/api/query", json={"message": "a"}) as response,
    ):
        assert (await read_all_frames(response))[-1].data == b"[DONE]"


async def test_a_client_stalled_in_an_unstreamed_answer_is_disconnected(tmp_path: Path) -> None:
    request = f"GET /api/chat?chatId={CHAT} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()
    with structlog.testing.capture_logs() as logged:
        async with suite(tmp_path, timing=Timing(slow_reader_s=0.5)) as facade:
            facade.memory.chat.events.append(text(1, "x" * (16 << 20)))
            with stalled_client(facade.url, request):
                async with within(20):
                    while not any(line["event"] == "slow reader dropped" for line in logged):
                        await asyncio.sleep(0.05)


async def test_a_slow_client_receives_an_unstreamed_answer_in_full(tmp_path: Path) -> None:
    async with suite(tmp_path, timing=Timing(slow_reader_s=0.3)) as facade:
        facade.memory.chat.events.append(text(1, "x" * (16 << 20)))
        received = 0
        async with within(50), facade.http.get("/api/chat", params={"chatId": CHAT}) as response:
            async for piece in response.content.iter_chunked(1 << 18):
                received += len(piece)
                await asyncio.sleep(0.02)
    assert received > 16 << 20
