"""The llama.cpp server in its environment, behind a recording proxy."""

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
from aiohttp import web

from headrace.sse import SseReader
from tests.judges.environments import BUILD
from tests.judges.models.judging import PROGRAMS, make_environment

READY_S = 300.0
TEMPLATE = Path(__file__).with_name("chat_template.jinja")
SHUTDOWN_S = 0.1
"""Time that a stopping proxy gives open streams; short because no test needs their ends."""


@dataclass
class Exchange:
    """A request and the answer received so far."""

    request: dict[str, Any]
    status: int = 0
    answer: bytearray = field(default_factory=bytearray)

    def read_frames(self) -> list[dict[str, Any]]:
        """Return the chunks of a streamed answer."""
        frames = SseReader().feed(bytes(self.answer))
        return [json.loads(frame.data) for frame in frames if frame.data != b"[DONE]"]


class RealServer:
    """A running server; `base_url` is that of the proxy."""

    def __init__(self, url: str, http: aiohttp.ClientSession) -> None:
        self.base_url = ""
        self.exchanges: list[Exchange] = []
        """Chat completions, oldest first."""
        self._url = url
        self._http = http

    async def post(self, path: str, body: dict[str, Any]) -> tuple[int, Any]:
        """Send a request to the server, bypassing the proxy; return status and JSON."""
        async with self._http.post(self._url + path, json=body) as response:
            return response.status, await response.json()

    async def count_busy_slots(self) -> int:
        async with self._http.get(f"{self._url}/slots") as response:
            return sum(slot["is_processing"] for slot in await response.json())

    async def forward(self, request: web.Request) -> web.StreamResponse:
        exchange = Exchange(json.loads(await request.read()))
        self.exchanges.append(exchange)
        response = web.StreamResponse()
        # A disconnect of the caller leaves this block and closes the connection to the server.
        async with self._http.post(self._url + request.path, json=exchange.request) as answer:
            exchange.status = answer.status
            response.set_status(answer.status)
            response.content_type = answer.content_type
            await response.prepare(request)
            async for data in answer.content.iter_any():
                exchange.answer += data
                await response.write(data)
        return response


@asynccontextmanager
async def serving_model(slot_tokens: int, template: Path = TEMPLATE) -> AsyncGenerator[RealServer]:
    """Serve the model inside the block, with two slots and a window of `slot_tokens` tokens each."""
    program = (make_environment("llama_cpp"), PROGRAMS / "serve_llama.py")
    command = (*program, BUILD, str(slot_tokens), template)
    pipe = asyncio.subprocess.PIPE
    with (BUILD / "llama_cpp.log").open("wb") as log:
        process = await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe, stderr=log)
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        async with asyncio.timeout(READY_S):
            url = (await process.stdout.readline()).decode().strip()
        assert url, f"the server has not started: {BUILD}/llama_cpp.log says why"
        # The model's server closes idle connections: each request gets a new one.
        connector = aiohttp.TCPConnector(force_close=True)
        async with aiohttp.ClientSession(connector=connector, timeout=aiohttp.ClientTimeout(total=None)) as http:
            server = RealServer(url, http)
            async with _serving_proxy(server):
                yield server
    finally:
        process.stdin.close()
        await process.wait()


@asynccontextmanager
async def _serving_proxy(server: RealServer) -> AsyncGenerator[None]:
    app = web.Application(client_max_size=64 << 20)
    app.router.add_post("/v1/chat/completions", server.forward)
    runner = web.AppRunner(app, handler_cancellation=True, access_log=None, shutdown_timeout=SHUTDOWN_S)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        server.base_url = f"http://127.0.0.1:{runner.addresses[0][1]}/v1"
        yield
    finally:
        await runner.cleanup()
