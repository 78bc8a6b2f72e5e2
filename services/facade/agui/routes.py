"""The routes of AG-UI."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import grpc
import orjson
from aiohttp import web

from headrace.errors import InvalidRequest, NotFound
from headrace.streams import rpc_errors
from headrace.v1 import agent_pb2, agent_pb2_grpc, common_pb2
from services.facade.agui.cursor import LAST_EVENT_ID, parse_cursor
from services.facade.agui.follow import follow_run
from services.facade.agui.frames import encode_frame
from services.facade.agui.request import Answer, RunRequest, parse_run_request
from services.facade.agui.run_encoder import RunEncoder
from services.facade.agui.state import States
from services.facade.faces.published import PublishedAgents
from services.facade.requests.body import read_body, read_single_header
from services.facade.responses.frame_writer import FrameWriter, StreamTimeouts
from services.facade.responses.sse import send_stream
from services.runtime.rpc import call_ids

UNARY_TIMEOUT_S = 30.0

FACE = "ag-ui"


def add_routes(
    application: web.Application,
    peers: Mapping[str, grpc.aio.Channel],
    timeouts: StreamTimeouts,
    published_faces: frozenset[str],
) -> None:
    published = PublishedAgents(peers["orchestrator"], FACE, published_faces)
    handlers = _AguiHandlers(published, peers["orchestrator"], States(peers["memory"]), timeouts)
    application.router.add_get("/agui", handlers.list_agents)
    application.router.add_get("/agui/{agent}", handlers.get_capabilities)
    application.router.add_post("/agui/{agent}", handlers.run_agent)


class _AguiHandlers:
    def __init__(
        self, published: PublishedAgents, orchestrator: grpc.aio.Channel, states: States, timeouts: StreamTimeouts
    ) -> None:
        self._published = published
        # Any: the stubs' types know the RPCs of synchronous channels too.
        self._agents: Any = agent_pb2_grpc.AgentServiceStub(orchestrator)
        path = f"/{agent_pb2.DESCRIPTOR.services_by_name['AgentService'].full_name}/"
        self._query: Any = orchestrator.unary_stream(f"{path}Query", agent_pb2.QueryRequest.SerializeToString)
        self._attach: Any = orchestrator.unary_stream(f"{path}Attach", agent_pb2.AttachRequest.SerializeToString)
        self._states = states
        self._timeouts = timeouts

    async def list_agents(self, _: web.Request) -> web.StreamResponse:
        agents = await self._published.list_agents()
        return _json_response({agent.key: _describe_agent(agent) for agent in agents})

    async def get_capabilities(self, request: web.Request) -> web.StreamResponse:
        return _json_response(_describe_agent(await self._published.get_agent(request.match_info["agent"])))

    async def run_agent(self, request: web.Request) -> web.StreamResponse:
        """Start a run, answer one that waits, or, with the cursor of an event, go on with its stream."""
        agent = await self._published.get_agent(request.match_info["agent"])
        given = read_single_header(request, LAST_EVENT_ID)
        cursor = parse_cursor(given) if given else None
        run_request = parse_run_request(await read_body(request), agent.key, cursor)
        if run_request.query is None:
            run = await self._answer_run(agent.key, run_request.answers)
            run_id, chat_id = run.run_id, run.chat_id
            call = self._attach(agent_pb2.AttachRequest(run_id=run_id), metadata=call_ids.forward_metadata())
        else:
            run_id, chat_id, run_request = "", run_request.chat_id, await self._drop_known_history(run_request)
            call = self._query(run_request.query, metadata=call_ids.forward_metadata())
        encoder, writer = RunEncoder(run_request.segment, run_id), FrameWriter(request, self._timeouts)
        following = follow_run(call, encoder, writer, self._states, chat_id)
        try:
            return await send_stream(writer, following, encode_failure, tells_breaks=True)
        except InvalidRequest as error:
            raise run_request.conversation.rename_field(error) from error

    async def _answer_run(self, agent_key: str, answers: Sequence[Answer]) -> agent_pb2.Run:
        """Give a run of the agent its answers, and return it; one that comes twice or too late changes nothing."""
        asked = agent_pb2.GetRunRequest(run_id=answers[0].run_id)
        with rpc_errors():
            reply = await self._agents.GetRun(asked, timeout=UNARY_TIMEOUT_S, metadata=call_ids.forward_metadata())
        if reply.run.agent_key != agent_key:
            raise NotFound(f"no run {answers[0].run_id} of this agent", field="runId")
        for answer in answers:
            submit = agent_pb2.SubmitRequest(run_id=answer.run_id, payload=answer.payload)
            if answer.is_approval:
                submit.approval_id = answer.gate_id
            else:
                submit.tool_id = answer.gate_id
            with rpc_errors():
                await self._agents.Submit(submit, timeout=UNARY_TIMEOUT_S, metadata=call_ids.forward_metadata())
        return reply.run

    async def _drop_known_history(self, run_request: RunRequest) -> RunRequest:
        is_new = not run_request.conversation.history or await self._states.load_state(run_request.chat_id) is None
        return run_request if is_new else run_request.forget_history()


def encode_failure(failure: common_pb2.Failure) -> bytes:
    """Return the error of a stream that breaks, without an id: the run may go on, and its reader may come back."""
    return encode_frame("RUN_ERROR", message=failure.message, code=failure.code)


def _describe_agent(agent: agent_pb2.Agent) -> dict[str, Any]:
    """Return the agent's AgentCapabilities."""
    return {
        "identity": {"name": agent.name, "type": "headrace", "description": agent.description},
        "transport": {"streaming": True, "resumable": True},
        "tools": {"supported": True, "parallelCalls": True, "clientProvided": True},
        "output": {"structuredOutput": True},
        "state": {"snapshots": True, "deltas": True, "persistentState": True},
        "multiAgent": {"supported": True, "delegation": True},
        "reasoning": {"supported": True, "streaming": True},
        "humanInTheLoop": {"supported": True, "approvals": True, "interrupts": True, "approveWithEdits": True},
        "custom": {"headrace.questions": [*agent.questions]},
    }


def _json_response(value: Any) -> web.Response:
    return web.Response(body=orjson.dumps(value), content_type="application/json", charset="utf-8")
