"""The HTTP server's routes, and `simulator()` for tests."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict, replace
from functools import partial
from typing import Any

import orjson
from aiohttp import web

from services.simulator import embeddings
from services.simulator.fake_web import add_routes
from services.simulator.model.builtin import build_load_reply, build_reply
from services.simulator.model_request import ModelRequest, RequestRefused
from services.simulator.player import play_actions
from services.simulator.protocols.registry import CHAT_PATH, PROTOCOLS, WireProtocol
from services.simulator.request_log import PrefixCache, RecordedRequest, RequestLog
from services.simulator.script import BadScript, Refusal, Reply, Rule, find_rule, parse_script

MODELS = ("sim-1", "sim-2", "bench-64x20ms", "idle")
"""Models listed by /v1/models; any other name works as well."""

BODY_SIZE_BYTES_MAX = 64 << 20
"""The same limit as for messages between services."""

SHUTDOWN_S = 0.1
"""How long a stopping simulator keeps streams open; nothing depends on their end."""


class Simulator:
    """A running simulator; its script may be replaced at any time."""

    def __init__(self, rules: Sequence[Rule], *, pace_ms: float) -> None:
        self.rules = tuple(rules)
        self.base_url = ""
        """Address with the final `/v1`, set once the server listens."""
        self._pace_ms = pace_ms
        self._request_log = RequestLog()
        self._prefix_cache = PrefixCache()

    @property
    def requests(self) -> deque[RecordedRequest]:
        """The last requests, oldest first."""
        return self._request_log.requests

    @property
    def open_streams(self) -> int:
        return self._request_log.open_streams

    async def until_idle(self) -> None:
        await self._request_log.until_idle()

    def build_app(self) -> web.Application:
        app = web.Application(client_max_size=BODY_SIZE_BYTES_MAX)
        for path, protocol in PROTOCOLS.items():
            app.router.add_post(path, partial(self._handle_chat, protocol))
        app.router.add_post(embeddings.PATH, self._handle_embeddings)
        app.router.add_get("/v1/models", self._handle_models)
        app.router.add_get("/simulator/requests", self._handle_requests)
        app.router.add_post("/simulator/script", self._handle_script)
        add_routes(app)
        return app

    async def _handle_chat(self, protocol: WireProtocol, request: web.Request) -> web.StreamResponse:
        with self._request_log.recording(request.path, request.headers) as record:
            try:
                record.body = orjson.loads(await request.read())
                model_request = protocol.parse_request(record.body, record.headers, request.match_info)
                cached_tokens = self._prefix_cache.measure(record.body, model_request.prompt_tokens)
                model_request = replace(model_request, cached_tokens=cached_tokens)
            except (RequestRefused, orjson.JSONDecodeError) as error:
                record.status = 400
                return _make_json_response(protocol.build_error(str(error), 400), status=400)
            rule = find_rule(self.rules, model_request, record.body)
            reply = rule or build_load_reply(model_request) or build_reply(model_request)
            if isinstance(refusal := reply.steps[0] if reply.steps else None, Refusal):
                record.status = refusal.status
                return _make_refusal(refusal, protocol)
            record.status = 200
            response = web.StreamResponse()
            try:
                await self._send_answer(request, response, protocol, model_request, reply)
            except ConnectionResetError:  # the client left during a write
                record.closed_by_client = True
            return response

    async def _handle_embeddings(self, request: web.Request) -> web.StreamResponse:
        with self._request_log.recording(request.path, request.headers) as record:
            try:
                record.body = orjson.loads(await request.read())
                answer = embeddings.build_answer(record.body)
            except (RequestRefused, orjson.JSONDecodeError) as error:
                record.status = 400
                return _make_json_response(PROTOCOLS[CHAT_PATH].build_error(str(error), 400), status=400)
            record.status = 200
            return _make_json_response(answer)

    async def _send_answer(
        self,
        request: web.Request,
        response: web.StreamResponse,
        protocol: WireProtocol,
        model_request: ModelRequest,
        reply: Reply,
    ) -> None:
        if reply.one_byte_writes or not model_request.stream:
            reply = reply.expand_repeats()
        response.content_type = protocol.stream_type if model_request.stream else "application/json"
        actions = (
            protocol.stream_reply(model_request, reply, pace_ms=self._pace_ms)
            if model_request.stream
            else protocol.build_whole_reply(model_request, reply)
        )
        await response.prepare(request)
        await play_actions(request, response, actions, one_byte_writes=reply.one_byte_writes)

    async def _handle_models(self, _: web.Request) -> web.Response:
        models = [{"id": name, "object": "model", "created": 0, "owned_by": "headrace"} for name in MODELS]
        return _make_json_response({"object": "list", "data": models})

    async def _handle_requests(self, _: web.Request) -> web.Response:
        requests = [asdict(record) for record in self.requests]
        return _make_json_response({"openStreams": self.open_streams, "requests": requests})

    async def _handle_script(self, request: web.Request) -> web.Response:
        try:
            self.rules = parse_script(orjson.loads(await request.read()))
        except (BadScript, orjson.JSONDecodeError) as error:
            return _make_json_response({"error": {"message": str(error)}}, status=400)
        return _make_json_response({"rules": len(self.rules)})


def _make_json_response(data: Any, *, status: int = 200) -> web.Response:
    return web.Response(body=orjson.dumps(data), status=status, content_type="application/json")


def _make_refusal(refusal: Refusal, protocol: WireProtocol) -> web.Response:
    body = refusal.body
    if body is None:
        body = protocol.build_error(f"scripted {refusal.status}", refusal.status)
    data = body.encode() if isinstance(body, str) else orjson.dumps(body)
    headers = {"Content-Type": "application/json"} | refusal.headers
    return web.Response(body=data, status=refusal.status, headers=headers)


@asynccontextmanager
async def simulator(
    script: object = (), *, host: str = "127.0.0.1", port: int = 0, pace_ms: float = 0
) -> AsyncGenerator[Simulator]:
    """Run a simulator inside the block; `script` is decoded JSON, or rules.

    Raises:
        BadScript: The script is invalid.
    """
    sim = Simulator(parse_script(script), pace_ms=pace_ms)
    # Cancelling the handler is how a leaving client is noticed.
    runner = web.AppRunner(sim.build_app(), handler_cancellation=True, access_log=None, shutdown_timeout=SHUTDOWN_S)
    await runner.setup()
    try:
        await web.TCPSite(runner, host, port).start()
        bound_port = runner.addresses[0][1]
        sim.base_url = f"http://{host}:{bound_port}/v1"
        yield sim
    finally:
        await runner.cleanup()
