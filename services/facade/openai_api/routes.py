"""The HTTP routes of the OpenAI API."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import aclosing
from dataclasses import replace
from functools import partial
from typing import Any

import grpc
import orjson
from aiohttp import web

from headrace.errors import Interrupted, InvalidRequest
from headrace.run_states import LIVE_STATES, State
from headrace.v1 import agent_pb2
from services.facade.adapters.attachments.uploads import Uploads
from services.facade.adapters.chat_states import ChatStates
from services.facade.adapters.runs import AdapterRuns, FollowedChats, make_unread_error
from services.facade.middleware.request_lifecycle import has_begun
from services.facade.openai_api.attachments.files import Files
from services.facade.openai_api.chat_completions.answer import (
    DONE,
    LAST_EVENT_ID,
    RESUMABLE,
    ChunkStream,
    FollowedAnswers,
    Place,
    build_completion,
    build_error_chunk,
    check_followed,
)
from services.facade.openai_api.chat_completions.request import parse_chat_request
from services.facade.openai_api.embeddings import Embeddings
from services.facade.openai_api.events import Output, RunEnded, RunEvent, RunStarted
from services.facade.openai_api.request import AgentRequest
from services.facade.openai_api.responses.answer import build_response
from services.facade.openai_api.responses.events import EventStream, build_attach_error, build_error_event
from services.facade.openai_api.responses.request import parse_response_id, parse_response_request
from services.facade.openai_api.responses.stored import StoredResponses
from services.facade.openai_api.runs import Runs
from services.facade.peer_calls import UNARY_TIMEOUT_S
from services.facade.requests.body import LargeBodies, read_single_header
from services.facade.responses import envelope, sse
from services.facade.responses.frame_writer import FrameWriter, StreamTimeouts
from services.runtime.rpc.push_stream import Watches

LOOK_TIMEOUT_S = 1.0
"""Maximum time to read a waiting run's events, or to wait for a cancelled run's end."""

BODY_BYTES_MAX = 36 * 1024 * 1024
"""Maximum size of a body: 26 MiB of images, audio and files in base64, and 1 MiB of text."""


def add_routes(
    application: web.Application,
    peers: Mapping[str, grpc.aio.Channel],
    timeouts: StreamTimeouts,
    watches: Watches,
    *,
    is_shared: bool,
) -> None:
    """Add the routes; with `is_shared` several tenants call."""
    orchestrator = peers["orchestrator"]
    states = ChatStates(peers["memory"])
    adapter_runs = AdapterRuns(orchestrator)
    followed = FollowedChats(orchestrator, adapter_runs, watches)
    handlers = _OpenAIHandlers(
        Runs(orchestrator, adapter_runs),
        Uploads(peers["tools"]),
        states,
        timeouts,
        adapter_runs,
        followed,
        LargeBodies(BODY_BYTES_MAX, is_shared=is_shared),
    )
    stored = StoredResponses(orchestrator, peers["memory"])
    files = Files(peers["tools"])
    router = application.router
    router.add_get("/v1/models", handlers.list_models)
    router.add_get("/v1/models/{model}", handlers.get_model)
    router.add_post("/v1/chat/completions", handlers.create_completion)
    router.add_post("/v1/files", files.create_file)
    router.add_get("/v1/files/{id}", files.get_file)
    router.add_post("/v1/embeddings", Embeddings(orchestrator).create_embeddings)
    router.add_post("/v1/responses", handlers.create_response)
    router.add_get("/v1/responses/{id}", handlers.get_response, allow_head=False)
    router.add_post("/v1/responses/{id}/cancel", handlers.cancel_response)
    router.add_get("/v1/responses/{id}/input_items", stored.list_input_items)
    router.add_delete("/v1/responses/{id}", stored.delete_response)


class _OpenAIHandlers:
    def __init__(
        self,
        runs: Runs,
        uploads: Uploads,
        states: ChatStates,
        timeouts: StreamTimeouts,
        adapter_runs: AdapterRuns,
        followed: FollowedChats,
        bodies: LargeBodies,
    ) -> None:
        self._runs = runs
        self._uploads = uploads
        self._states = states
        self._adapter_runs = adapter_runs
        self._followed = followed
        self._bodies = bodies
        self._timeouts = timeouts

    async def list_models(self, _: web.Request) -> web.StreamResponse:
        return _json_response(
            {"object": "list", "data": [_build_model(agent) for agent in await self._runs.list_agents()]}
        )

    async def get_model(self, request: web.Request) -> web.StreamResponse:
        return _json_response(_build_model(await self._runs.get_agent(request.match_info["model"])))

    async def create_completion(self, request: web.Request) -> web.StreamResponse:
        """Start a run, submit results to a waiting run, or resend chunks that the client has missed."""
        if request.headers.get(LAST_EVENT_ID) or request.headers.get(RESUMABLE) == "true":
            return await self._follow_chat(request)
        agent_request = await self._read_request(request, parse_chat_request)
        async with aclosing(self._runs.follow_run(agent_request)) as events:
            if agent_request.stream:
                chunks = ChunkStream(agent_request, lambda: has_begun(request))
                return await sse.send_frames(
                    request, events, chunks.map_event, build_error_chunk, self._timeouts, tells_breaks=True
                )
            start, output, end = await _read_to_end(events)
        if (why := end.failure) is not None:
            details = orjson.loads(why.details or "{}")
            return envelope.wrap_run_failure(why.code, why.message, retriable=why.retriable, details=details)
        if end.reason == State.CANCELLED:
            return envelope.build_failure(499, "CANCELLED", "the run was cancelled")
        return _json_response(build_completion(agent_request, start, output, end))

    async def _follow_chat(self, request: web.Request) -> web.StreamResponse:
        """Send chunks with ids, of a new run or after the chunk in Last-Event-ID."""
        given = read_single_header(request, LAST_EVENT_ID)
        place = Place.parse(given) if given else None
        if place is None:
            agent_request = await self._read_request(request, parse_chat_request)
        else:
            async with self._bodies.reading_body(request) as body:
                agent_request = parse_chat_request(body)
        check_followed(agent_request, is_asked=place is None)
        chat_id, writer = agent_request.chat_id, FrameWriter(request, self._timeouts)
        if place is None:
            cursor = await self._states.find_end(chat_id)
            async with aclosing(self._runs.follow_run(replace(agent_request, background=True))) as events:
                last_run_id = (await _read_start(events)).run_id
        else:
            cursor, runs = f"{place.n}.0", await self._adapter_runs.list_runs(chat_id)
            last_run_id = runs[0].run_id if runs else ""
        answers = FollowedAnswers(agent_request, place, last_run_id, writer.write_frame)

        async def send_answers() -> None:
            if last_run_id:
                await self._followed.follow(chat_id, cursor, None, answers.take)
            await writer.write_frame(DONE)

        return await sse.send_stream(writer, send_answers(), build_error_chunk, tells_breaks=True)

    async def create_response(self, request: web.Request) -> web.StreamResponse:
        """Start or resume a run."""
        agent_request = await self._read_request(request, parse_response_request)
        async with aclosing(self._runs.follow_run(agent_request)) as events:
            if agent_request.stream:
                stream = EventStream(agent_request)
                return await sse.send_frames(request, events, stream.map_event, build_error_event, self._timeouts)
            if agent_request.background:
                return _json_response(build_response(agent_request, await _read_start(events), Output(), None))
            return _json_response(build_response(agent_request, *await _read_to_end(events)))

    async def _read_request(self, request: web.Request, parse: Callable[[bytes], AgentRequest]) -> AgentRequest:
        async with self._bodies.reading_body(request) as body:
            agent_request = parse(body)
            if agent_request.previous_response_id and not agent_request.results:
                run = await self._adapter_runs.get_run(parse_response_id(agent_request.previous_response_id))
                agent_request = replace(agent_request, chat_id=run.chat_id)
            conversation, known = agent_request.conversation, agent_request.known
            if agent_request.results and conversation.attachments:
                run = await self._adapter_runs.get_run(agent_request.results[0].call.run_id)
                agent_request = replace(agent_request, chat_id=run.chat_id)
            if known and (chat_id := agent_request.chat_id) and await self._states.load_state(chat_id) is not None:
                # The chat's log already has these.
                conversation = replace(conversation, history=conversation.history[known:])
            chat_id, references = await self._uploads.store_attachments(
                conversation.list_attachments(), agent_request.chat_id
            )
            return replace(agent_request, conversation=conversation, chat_id=chat_id, references=references)

    async def get_response(self, request: web.Request) -> web.StreamResponse:
        """Answer with the current response, or stream its events after `starting_after`."""
        run_id = parse_response_id(request.match_info["id"])
        if request.query.get("stream") == "true":
            number = request.query.get("starting_after", "0")
            if not (number.isascii() and number.isdigit() and len(number) <= 18):
                raise InvalidRequest.of("starting_after", "must be a whole number")
            after = int(number)
            async with aclosing(self._runs.attach_run(run_id)) as events:
                words = partial(build_attach_error, starting_after=after)
                stream = EventStream(_unknown_request(), after)
                return await sse.send_frames(request, events, stream.map_event, words, self._timeouts)
        return _json_response(await self._read_response(run_id))

    async def cancel_response(self, request: web.Request) -> web.StreamResponse:
        """Cancel the run and answer with its response."""
        run_id = parse_response_id(request.match_info["id"])
        await self._adapter_runs.cancel_run(run_id)
        return _json_response(await self._read_response(run_id, is_ending=True))

    async def _read_response(self, run_id: str, *, is_ending: bool = False) -> dict[str, Any]:
        run = await self._adapter_runs.get_run(run_id)
        start = RunStarted(0, run.run_id, run.chat_id, run.agent_key, run.created_at // 1000)
        if run.state in (State.QUEUED, State.RUNNING) and not is_ending:
            return build_response(_unknown_request(), start, Output(), None)
        has_ended = run.state not in LIVE_STATES
        try:
            timeout_s = UNARY_TIMEOUT_S if has_ended else LOOK_TIMEOUT_S
            async with asyncio.timeout(timeout_s), aclosing(self._runs.attach_run(run_id)) as events:
                return build_response(_unknown_request(), *await _read_to_end(events))
        except TimeoutError:
            if has_ended:
                raise make_unread_error(run_id) from None
            return build_response(_unknown_request(), start, Output(), None)


async def _read_start(events: AsyncIterator[RunEvent]) -> RunStarted:
    """Read the first event; Interrupted if there is none."""
    async for event in events:
        if isinstance(event, RunStarted):
            return event
    raise Interrupted("the run ended before it started; ask again")


async def _read_to_end(events: AsyncIterator[RunEvent]) -> tuple[RunStarted, Output, RunEnded]:
    """Read all events; Interrupted if they end before the run."""
    output, start = Output(), None
    async for event in events:
        output.apply_event(event)
        if isinstance(event, RunStarted):
            start = event
        elif isinstance(event, RunEnded) and start is not None:
            return start, output, event
    raise Interrupted("the run's stream ended before the run did")


def _unknown_request() -> AgentRequest:
    """Return a placeholder for the request, which is not stored."""
    return AgentRequest(model="")


def _build_model(agent: agent_pb2.Agent) -> dict[str, Any]:
    return {"id": agent.key, "object": "model", "created": 0, "owned_by": "headrace"}


def _json_response(value: Any) -> web.Response:
    return web.Response(body=orjson.dumps(value), content_type="application/json", charset="utf-8")
