"""Broken HTTP over real sockets: told to the caller, one INFO line, and nothing of it in the log."""

import asyncio
import gzip
import zlib
from pathlib import Path

import pytest
from aiohttp import web
from structlog.testing import capture_logs

from services.facade.requests import body
from tests.support.facade.scripted import Script, answering, suite
from tests.support.raw_http import say

POST = b"POST /api/query HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: application/json\r\n"


@pytest.mark.parametrize("coding", ["gzip", "deflate", "br", "wurst"])
async def test_a_compressed_body_is_refused_by_name_however_it_is_made(tmp_path: Path, coding: str) -> None:
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
        pytest.param(POST + b"X-Much: " + b"secret" * 2000 + b"\r\n\r\n", id="long header"),
        pytest.param(
            b"GET /api/agents?tag=" + b"secret" * 2000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n", id="long URL"
        ),
        pytest.param(b"GET /secret HTTP/1.1\r\n\r\n", id="no host"),
    ],
)
async def test_broken_http_is_400_and_one_info_line_without_its_bytes(
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
async def test_a_body_that_does_not_end_is_408(sent: bytes) -> None:
    async def answer(request: web.Request) -> web.Response:
        return web.Response(body=await body.read_body(request, timeout_s=0.1))

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
