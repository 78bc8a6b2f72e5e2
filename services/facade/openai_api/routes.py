"""The routes of the OpenAI face."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from dataclasses import replace
from functools import partial
from typing import Any

import grpc
import orjson
from aiohttp import web

from headrace.errors import Interrupted, InvalidRequest
from headrace.v1 import agent_pb2
from services.facade.middleware.request_lifecycle import has_begun
from services.facade.openai_api.chat_completions.answer import build_completion, build_error_chunk, stream_chunks
from services.facade.openai_api.chat_completions.request import parse_chat_request
from services.facade.openai_api.events import Ended, Started, Told
from services.facade.openai_api.output import Output
from services.facade.openai_api.request import Asked
from services.facade.openai_api.responses.answer import build_response
from services.facade.openai_api.responses.events import build_attach_error, build_error_event, stream_events
from services.facade.openai_api.responses.request import parse_response_id, parse_response_request
from services.facade.openai_api.runs import Runs
from services.facade.requests.body import body
from services.facade.responses import envelope, sse
from services.facade.responses.sse import Pace
from services.facade.responses.stream_errors import Words

LOOK_S = 1.0
"""How long a run that waits is read for what it has said, and a cancelled one for its end. A wait for its caller is
told sooner; one that a person is to end looks as if the run were busy."""

LIVE = frozenset({"queued", "running"})


def add_routes(application: web.Application, orchestrator: grpc.aio.Channel, pace: Pace) -> None:
    """Serve the face."""
    face = _Face(Runs(orchestrator), pace)
    router = application.router
    router.add_get("/v1/models", face.models)
    router.add_get("/v1/models/{model}", face.model)
    router.add_post("/v1/chat/completions", face.chat_completion)
    router.add_post("/v1/responses", face.new_response)
    router.add_get("/v1/responses/{id}", face.known_response, allow_head=False)
    router.add_post("/v1/responses/{id}/cancel", face.cancelled_response)


class _Face:
    """Serves each route."""

    def __init__(self, runs: Runs, pace: Pace) -> None:
        self._runs = runs
        self._pace = pace

    async def models(self, _: web.Request) -> web.StreamResponse:
        """The agents as models."""
        return _json({"object": "list", "data": [_model(agent) for agent in await self._runs.agents()]})

    async def model(self, request: web.Request) -> web.StreamResponse:
        """One agent as a model."""
        return _json(_model(await self._runs.agent(request.match_info["model"])))

    async def chat_completion(self, request: web.Request) -> web.StreamResponse:
        """Ask, or give results to the run that waits for them."""
        asked = parse_chat_request(await body(request))
        async with aclosing(self._runs.follow(asked)) as things:
            if asked.stream:
                chunks = stream_chunks(asked, things, lambda: has_begun(request))
                return await self._send(request, chunks, build_error_chunk)
            start, output, end = await _folded(things)
        return _failure(end) or _json(build_completion(asked, start, output, end))

    async def new_response(self, request: web.Request) -> web.StreamResponse:
        """The same, as a response."""
        asked = parse_response_request(await body(request))
        if asked.previous_response_id and not asked.results:
            run = await self._runs.get(parse_response_id(asked.previous_response_id))
            asked = replace(asked, chat_id=run.chat_id)
        async with aclosing(self._runs.follow(asked)) as things:
            if asked.stream:
                return await self._send(request, stream_events(asked, things), build_error_event)
            if asked.background:
                return _json(build_response(asked, await _started(things), Output(), None))
            return _json(build_response(asked, *await _folded(things)))

    async def known_response(self, request: web.Request) -> web.StreamResponse:
        """A response as it stands, or its events behind `starting_after`."""
        run_id = parse_response_id(request.match_info["id"])
        if request.query.get("stream") == "true":
            after = _number(request.query.get("starting_after", "0"))
            async with aclosing(self._runs.attach(run_id)) as things:
                words = partial(build_attach_error, starting_after=after)
                return await self._send(request, stream_events(_of_run(), things, after), words)
        return _json(await self._looked_at(run_id))

    async def cancelled_response(self, request: web.Request) -> web.StreamResponse:
        """Stop a run; the response as it then stands."""
        run_id = parse_response_id(request.match_info["id"])
        await self._runs.cancel(run_id)
        return _json(await self._looked_at(run_id, is_ending=True))

    async def _looked_at(self, run_id: str, *, is_ending: bool = False) -> dict[str, Any]:
        run = await self._runs.get(run_id)
        start = Started(0, run.run_id, run.chat_id, run.agent_key, run.created_at // 1000)
        if run.state in LIVE and not is_ending:
            return build_response(_of_run(), start, Output(), None)
        try:
            async with asyncio.timeout(LOOK_S), aclosing(self._runs.attach(run_id)) as things:
                return build_response(_of_run(), *await _folded(things))
        except TimeoutError:
            return build_response(_of_run(), start, Output(), None)

    async def _send(self, request: web.Request, frames: AsyncGenerator[bytes], words: Words) -> web.StreamResponse:
        async with aclosing(frames):
            return await sse.send(request, frames, words, self._pace)


async def _started(things: AsyncIterator[Told]) -> Started:
    """The beginning of a run. Raises Interrupted."""
    async for thing in things:
        if isinstance(thing, Started):
            return thing
    raise Interrupted("the run ended before it started; ask again")


async def _folded(things: AsyncIterator[Told]) -> tuple[Started, Output, Ended]:
    """All that is told, to the end. Raises Interrupted."""
    output, start = Output(), None
    async for thing in things:
        output.add(thing)
        if isinstance(thing, Started):
            start = thing
        elif isinstance(thing, Ended) and start is not None:
            return start, output, thing
    raise Interrupted("the run's stream ended before the run did")


def _failure(end: Ended) -> web.Response | None:
    """The answer for a run that has failed or was cancelled; None for any other."""
    if (why := end.failure) is not None:
        details = orjson.loads(why.details or "{}")
        return envelope.run_failure(why.code, why.message, retriable=why.retriable, details=details)
    return envelope.refused(499, "CANCELLED", "the run was cancelled") if end.reason == "cancelled" else None


def _of_run() -> Asked:
    """For a response that is only looked at: what was asked is not kept."""
    return Asked(model="", message="")


def _model(agent: agent_pb2.Agent) -> dict[str, Any]:
    return {"id": agent.key, "object": "model", "created": 0, "owned_by": "headrace"}


def _number(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 18):
        raise InvalidRequest.of("starting_after", "must be a whole number")
    return int(text)


def _json(value: Any) -> web.Response:
    return web.Response(body=orjson.dumps(value), content_type="application/json", charset="utf-8")
