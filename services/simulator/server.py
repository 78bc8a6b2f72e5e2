"""The HTTP server: routes, and `simulator()` for tests."""

from __future__ import annotations

from contextlib import asynccontextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import orjson
from aiohttp import web

from services.simulator.fake_web import add_routes
from services.simulator.model.builtin import built_in
from services.simulator.model.load import load
from services.simulator.playback.player import play
from services.simulator.protocols.registry import PROTOCOLS, WireProtocol
from services.simulator.requests.model_request import Ask, Refused
from services.simulator.requests.request_log import RecordedRequest, Records
from services.simulator.scripts.script import BadScript, parse_script, scripted
from services.simulator.scripts.steps import Refusal, Reply, Rule

if TYPE_CHECKING:
    from collections import deque
    from collections.abc import AsyncGenerator, Sequence

MODELS = ("sim-1", "sim-2", "bench-64x20ms", "idle")
"""Listed by /v1/models; any other name is answered like these."""

BODY_SIZE_BYTES_MAX = 64 << 20
"""As large as a message between services may be."""

SHUTDOWN_S = 0.1
"""How long a stopping simulator lets streams run; nobody depends on their end."""


class Simulator:
    """A running simulator. What it was asked is read here, and its script may be replaced at any time."""

    def __init__(self, rules: Sequence[Rule], *, pace_ms: float) -> None:
        self.rules = tuple(rules)
        self.base_url = ""
        """With the `/v1` that provider files end with; set when the server listens."""
        self._pace_ms = pace_ms
        self._records = Records()

    @property
    def requests(self) -> deque[RecordedRequest]:
        """The last requests to models, oldest first."""
        return self._records.requests

    @property
    def open_streams(self) -> int:
        """Requests to models that are being answered."""
        return self._records.open_streams

    async def until_idle(self) -> None:
        """Return when no request is being answered."""
        await self._records.until_idle()

    def app(self) -> web.Application:
        """The routes."""
        app = web.Application(client_max_size=BODY_SIZE_BYTES_MAX)
        for path in PROTOCOLS:
            app.router.add_post(path, self._chat)
        app.router.add_get("/v1/models", self._models)
        app.router.add_get("/simulator/requests", self._recorded)
        app.router.add_post("/simulator/script", self._replace_script)
        add_routes(app)
        return app

    async def _chat(self, request: web.Request) -> web.StreamResponse:
        protocol = PROTOCOLS[request.path]
        with self._records.recording(request.path, request.headers) as record:
            try:
                record.body = orjson.loads(await request.read())
                ask = protocol.parse_ask(record.body, record.headers)
            except (Refused, orjson.JSONDecodeError) as error:
                record.status = 400
                return _json(protocol.error_body(str(error), 400), status=400)
            reply = scripted(self.rules, ask) or load(ask) or built_in(ask)
            if isinstance(refusal := reply.steps[0] if reply.steps else None, Refusal):
                record.status = refusal.status
                return _refused(refusal, protocol)
            record.status = 200
            response = web.StreamResponse()
            try:
                await self._answer(request, response, protocol, ask, reply)
            except ConnectionResetError:  # the client left while something was written
                record.closed_by_client = True
            return response

    async def _answer(
        self, request: web.Request, response: web.StreamResponse, protocol: WireProtocol, ask: Ask, reply: Reply
    ) -> None:
        if reply.one_byte_writes or not ask.stream:
            reply = reply.spelled_out()
        response.content_type = "text/event-stream" if ask.stream else "application/json"
        actions = protocol.streamed(ask, reply, pace_ms=self._pace_ms) if ask.stream else protocol.whole(ask, reply)
        await response.prepare(request)
        await play(request, response, actions, one_byte_writes=reply.one_byte_writes)

    async def _models(self, _: web.Request) -> web.Response:
        models = [{"id": name, "object": "model", "created": 0, "owned_by": "headrace"} for name in MODELS]
        return _json({"object": "list", "data": models})

    async def _recorded(self, _: web.Request) -> web.Response:
        requests = [asdict(record) for record in self.requests]
        return _json({"openStreams": self.open_streams, "requests": requests})

    async def _replace_script(self, request: web.Request) -> web.Response:
        try:
            self.rules = parse_script(orjson.loads(await request.read()))
        except (BadScript, orjson.JSONDecodeError) as error:
            return _json({"error": {"message": str(error)}}, status=400)
        return _json({"rules": len(self.rules)})


def _json(data: Any, *, status: int = 200) -> web.Response:
    return web.Response(body=orjson.dumps(data), status=status, content_type="application/json")


def _refused(refusal: Refusal, protocol: WireProtocol) -> web.Response:
    body = refusal.body
    if body is None:
        body = protocol.error_body(f"scripted {refusal.status}", refusal.status)
    data = body.encode() if isinstance(body, str) else orjson.dumps(body)
    headers = {"Content-Type": "application/json"} | refusal.headers
    return web.Response(body=data, status=refusal.status, headers=headers)


@asynccontextmanager
async def simulator(
    script: object = (), *, host: str = "127.0.0.1", port: int = 0, pace_ms: float = 0
) -> AsyncGenerator[Simulator]:
    """A simulator that listens inside the block. `script` is decoded JSON, or rules.

    Raises:
        BadScript: The script is not in the format.
    """
    sim = Simulator(parse_script(script), pace_ms=pace_ms)
    # A handler is cancelled when its client leaves: that is how a leaving client is seen.
    runner = web.AppRunner(sim.app(), handler_cancellation=True, access_log=None, shutdown_timeout=SHUTDOWN_S)
    await runner.setup()
    try:
        await web.TCPSite(runner, host, port).start()
        bound_port = runner.addresses[0][1]
        sim.base_url = f"http://{host}:{bound_port}/v1"
        yield sim
    finally:
        await runner.cleanup()
