"""AG-UI's HTTP routes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import grpc
import orjson
from aiohttp import web

from headrace.errors import InvalidRequest
from headrace.v1 import agent_pb2, common_pb2
from services.facade.adapters.attachments.uploads import Uploads
from services.facade.adapters.chat_states import ChatStates
from services.facade.adapters.runs import AdapterRuns, FollowedChats, PublishedAgents
from services.facade.agui.follow import ThreadSink, follow_run
from services.facade.agui.frames import encode_frame
from services.facade.agui.request import (
    RunRequest,
    find_chat,
    find_older_chat_id,
    parse_run_request,
    parse_segment,
)
from services.facade.agui.run_encoder import RunEncoder
from services.facade.agui.segment import LAST_EVENT_ID, parse_cursor
from services.facade.requests.body import read_body, read_single_header
from services.facade.responses.frame_writer import FrameWriter, StreamTimeouts
from services.facade.responses.sse import send_stream
from services.runtime.rpc.push_stream import Watches

ADAPTER = "ag-ui"


def add_routes(
    application: web.Application,
    peers: Mapping[str, grpc.aio.Channel],
    timeouts: StreamTimeouts,
    publishing_adapters: frozenset[str],
    watches: Watches,
) -> None:
    published = PublishedAgents(peers["orchestrator"], ADAPTER, publishing_adapters)
    runs, uploads = AdapterRuns(peers["orchestrator"]), Uploads(peers["tools"])
    followed = FollowedChats(peers["orchestrator"], runs, watches)
    handlers = _AguiHandlers(published, runs, followed, uploads, ChatStates(peers["memory"]), timeouts)
    application.router.add_get("/agui", handlers.list_agents)
    application.router.add_get("/agui/{agent}", handlers.get_capabilities)
    application.router.add_post("/agui/{agent}", handlers.run_agent)
    application.router.add_post("/agui/{agent}/connect", handlers.follow_thread)


class _AguiHandlers:
    def __init__(
        self,
        published: PublishedAgents,
        runs: AdapterRuns,
        followed: FollowedChats,
        uploads: Uploads,
        states: ChatStates,
        timeouts: StreamTimeouts,
    ) -> None:
        self._published = published
        self._runs = runs
        self._followed = followed
        self._uploads = uploads
        self._states = states
        self._timeouts = timeouts

    async def list_agents(self, _: web.Request) -> web.StreamResponse:
        agents = await self._published.list_agents()
        return _json_response({agent.key: _describe_agent(agent) for agent in agents})

    async def get_capabilities(self, request: web.Request) -> web.StreamResponse:
        return _json_response(_describe_agent(await self._published.get_agent(request.match_info["agent"])))

    async def run_agent(self, request: web.Request) -> web.StreamResponse:
        """Start a run or answer a waiting one; with Last-Event-ID, resume its stream after that event."""
        agent = await self._published.get_agent(request.match_info["agent"])
        given = read_single_header(request, LAST_EVENT_ID)
        cursor = parse_cursor(given) if given else None
        run_request = await self._find_older_chat(parse_run_request(await read_body(request), agent.key, cursor))
        if run_request.answers:
            run = await self._runs.get_run(run_request.answers[0].run_id, [agent.key])
            await self._runs.answer_run(run_request.answers)
            run_id, chat_id, call = run.run_id, run.chat_id, self._runs.attach_run(run.run_id)
        else:
            query = await self._make_query(run_request, is_known=cursor is not None)
            run_id, chat_id, call = "", run_request.chat_id, self._runs.start_run(query)
        encoder, writer = RunEncoder(run_request.segment, run_id), FrameWriter(request, self._timeouts)
        following = follow_run(call, encoder, writer, self._states, chat_id)
        try:
            return await send_stream(writer, following, encode_failure, tells_breaks=True)
        except InvalidRequest as error:
            raise run_request.conversation.rename_field(error) from error

    async def follow_thread(self, request: web.Request) -> web.StreamResponse:
        """Send the events of all runs of a thread, including later ones; with a cursor, only those after it."""
        agent = await self._published.get_agent(request.match_info["agent"])
        given = read_single_header(request, LAST_EVENT_ID)
        cursor = parse_cursor(given) if given else None
        if cursor is not None and not cursor.n:
            raise InvalidRequest.of(LAST_EVENT_ID, "must be the id of an event of a followed thread, such as '12.34'")
        segment = parse_segment(await read_body(request), cursor)
        older = find_older_chat_id(segment.thread_id)
        chat_id, name = find_chat(segment.thread_id)
        chat_id = older if name and await self._states.owns_chat(older) else chat_id
        writer = FrameWriter(request, self._timeouts)
        sink = ThreadSink(segment, writer, self._states, chat_id)
        place = f"{cursor.n}.0" if cursor else ""  # the run comes from its beginning
        following = self._followed.follow(chat_id, place, [agent.key], sink.take)
        return await send_stream(writer, following, encode_failure, tells_breaks=True)

    async def _find_older_chat(self, run_request: RunRequest) -> RunRequest:
        """Continue in the chat that the thread had before threads were private to a user, if the caller owns
        that chat.
        """
        query = run_request.query
        if query is None or not query.HasField("chat_key"):
            return run_request
        older = find_older_chat_id(run_request.segment.thread_id)
        if not await self._states.owns_chat(older):
            return run_request
        query.chat_id = older
        query.ClearField("chat_key")
        return replace(run_request, chat_id=older)

    async def _make_query(self, run_request: RunRequest, *, is_known: bool) -> agent_pb2.QueryRequest:
        """Return the query with its files uploaded; a query that `is_known` attaches to its run and uploads
        nothing.
        """
        history = run_request.conversation.history
        is_new = not history or await self._states.load_state(run_request.chat_id) is None
        attachments = [] if is_known else run_request.list_attachments(is_new=is_new)
        query = run_request.make_query(is_new=is_new)
        _, references = await self._uploads.store_attachments(attachments, run_request.chat_id, query.chat_key)
        query.references.extend(references)
        return query


def encode_failure(failure: common_pb2.Failure) -> bytes:
    """Return the error frame of a broken stream; it has no id because the run may continue and its reader may
    reconnect.
    """
    return encode_frame("RUN_ERROR", message=failure.message, code=failure.code)


def _describe_agent(agent: agent_pb2.Agent) -> dict[str, Any]:
    """Return the agent's AgentCapabilities."""
    return {
        "identity": {"name": agent.name, "type": "headrace", "description": agent.description},
        "transport": {"streaming": True, "resumable": True},
        "tools": {"supported": True, "parallelCalls": True, "clientProvided": True},
        "output": {"structuredOutput": True},
        "multimodal": {"input": {"image": True, "audio": True, "video": True, "pdf": True, "file": True}},
        "state": {"snapshots": True, "deltas": True, "persistentState": True},
        "multiAgent": {"supported": True, "delegation": True},
        "reasoning": {"supported": True, "streaming": True},
        "humanInTheLoop": {"supported": True, "approvals": True, "interrupts": True, "approveWithEdits": True},
        "custom": {"headrace.questions": [*agent.questions]},
    }


def _json_response(value: Any) -> web.Response:
    return web.Response(body=orjson.dumps(value), content_type="application/json", charset="utf-8")
