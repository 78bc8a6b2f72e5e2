"""Clients that stop reading, over real sockets: what is kept for them, when they are left, what others notice."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
import structlog

from tests.support.facade.fronts import Timing
from tests.support.facade.scripted import CHAT, Script, answering, frames_of, opening, suite, text
from tests.support.facade.slow_readers import JSON, PIECE_BYTES, Endless, deaf
from tests.support.timing import within

ASK = b"POST /api/query HTTP/1.1\r\n" + JSON + b'Content-Length: 15\r\n\r\n{"message":"a"}'
OPENAI = b'{"model":"helper","stream":true,"messages":[{"role":"user","content":"a"}]}'
STREAM_BYTES_MAX = 8 << 20


async def test_little_is_kept_for_a_client_that_does_not_read_and_others_go_on(tmp_path: Path) -> None:
    async with suite(tmp_path, Script(query=Endless())) as facade:
        with deaf(facade.url, ASK):
            await facade.script.heard.wait()
            sent = -1
            while sent != facade.script.sent:
                sent = facade.script.sent
                await asyncio.sleep(0.3)
            assert sent * PIECE_BYTES < STREAM_BYTES_MAX
            facade.script.query = answering("x")
            async with within(1), facade.http.post("/api/query", json={"message": "b"}) as response:
                assert (await frames_of(response))[-1].data == b"[DONE]"


@pytest.mark.parametrize(
    "sent",
    [
        pytest.param(ASK, id="events"),
        pytest.param(
            b"POST /v1/chat/completions HTTP/1.1\r\n%bContent-Length: %d\r\n\r\n%b" % (JSON, len(OPENAI), OPENAI),
            id="chat completions",
        ),
    ],
)
async def test_a_client_that_does_not_read_is_left_in_the_end(tmp_path: Path, sent: bytes) -> None:
    async with suite(tmp_path, Script(query=Endless()), timing=Timing(slow_reader_s=0.5)) as facade:
        with deaf(facade.url, sent):
            await facade.script.heard.wait()
            async with asyncio.timeout(50):
                await facade.script.closed.wait()
        # What leaving means for the run is the query's to say; nothing said: it goes on.
        assert sent is not ASK or not facade.script.cancelled.is_set()


async def test_a_client_that_waits_for_a_silent_run_is_not_taken_for_one_that_does_not_read(tmp_path: Path) -> None:
    script = Script(query=[*opening(), 1.0, *answering("x")[3:]])
    async with (
        suite(tmp_path, script, timing=Timing(slow_reader_s=0.2)) as facade,
        facade.http.post("/api/query", json={"message": "a"}) as response,
    ):
        assert (await frames_of(response))[-1].data == b"[DONE]"


async def test_a_client_that_does_not_read_a_whole_answer_is_left_in_the_end(tmp_path: Path) -> None:
    asked = f"GET /api/chat?chatId={CHAT} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()
    with structlog.testing.capture_logs() as logged:
        async with suite(tmp_path, timing=Timing(slow_reader_s=0.5)) as facade:
            facade.memory.chat.events.append(text(1, "x" * (16 << 20)))
            with deaf(facade.url, asked):
                async with within(20):
                    while not any(line["event"] == "slow reader dropped" for line in logged):
                        await asyncio.sleep(0.05)


async def test_a_client_that_takes_a_whole_answer_slowly_has_it_in_the_end(tmp_path: Path) -> None:
    async with suite(tmp_path, timing=Timing(slow_reader_s=0.3)) as facade:
        facade.memory.chat.events.append(text(1, "x" * (16 << 20)))
        got = 0
        async with within(50), facade.http.get("/api/chat", params={"chatId": CHAT}) as response:
            async for piece in response.content.iter_chunked(1 << 18):
                got += len(piece)
                await asyncio.sleep(0.02)
    assert got > 16 << 20
