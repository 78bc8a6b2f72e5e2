"""MCP's HTTP route: streamable HTTP at /mcp."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import version
from typing import Any

import grpc
from aiohttp import web

from headrace.errors import HeadraceError, NotFound, from_rpc_error
from headrace.v1 import agent_pb2, common_pb2
from services.facade.adapters.attachments.uploads import Uploads
from services.facade.adapters.gate_answers import parse_gate_ref
from services.facade.adapters.run_pipe import pipe_run
from services.facade.adapters.runs import AdapterRuns, FollowedChats, PublishedAgents
from services.facade.mcp_server.catalogue import build_prompts, build_tools, get_prompt, read_query
from services.facade.mcp_server.elicitation import read_response
from services.facade.mcp_server.protocol import (
    BAD_PARAMS,
    HANDSHAKE,
    MODERN,
    NO_METHOD,
    NO_RESOURCE,
    OTHER,
    SESSION_ID,
    STATUS,
    TASKS,
    McpError,
    Message,
    build_error,
    build_result,
    convert_error,
    decode_body,
    make_session_id,
    parse_message,
)
from services.facade.mcp_server.resources import TEMPLATES, Resources, Subscription
from services.facade.mcp_server.run_view import RunView
from services.facade.mcp_server.tasks import Tasks, build_related, check_method, is_task_wanted
from services.facade.mcp_server.tool_call import ToolCall, encode_frame
from services.facade.middleware.request_lifecycle import has_begun
from services.facade.requests.body import read_body
from services.facade.responses import envelope
from services.facade.responses.frame_writer import FrameWriter, StreamTimeouts
from services.facade.responses.sse import send_stream
from services.facade.responses.stream_errors import ErrorEncoder
from services.runtime.auth import identity
from services.runtime.rpc.push_stream import Watches

ADAPTER = "mcp"

SERVER = {"name": "headrace", "title": "Headrace", "version": version("headrace")}
CAPABILITIES: dict[str, Any] = {"tools": {}, "prompts": {}, "resources": {}}
MODERN_CAPABILITIES = CAPABILITIES | {"resources": {"subscribe": True}, "extensions": {TASKS: {}}}
TASK_CAPABILITIES = CAPABILITIES | {"tasks": {"list": {}, "cancel": {}, "requests": {"tools": {"call": {}}}}}


def add_routes(
    application: web.Application,
    peers: Mapping[str, grpc.aio.Channel],
    timeouts: StreamTimeouts,
    publishing_adapters: frozenset[str],
    watches: Watches,
) -> None:
    published = PublishedAgents(peers["orchestrator"], ADAPTER, publishing_adapters)
    runs = AdapterRuns(peers["orchestrator"])
    followed = FollowedChats(peers["orchestrator"], runs, watches)
    resources = Resources(peers["memory"], peers["tools"], followed)
    tasks = Tasks(peers["memory"], runs)
    handlers = _McpHandlers(published, runs, Uploads(peers["tools"]), tasks, resources, followed, timeouts)
    application.router.add_post("/mcp", handlers.answer)
    application.router.add_post("/mcp/", handlers.answer)  # the address of many other servers ends so
    # No DELETE: a session exists only as its id, so there is nothing to end; clients interpret 405 as that.


class _McpHandlers:
    def __init__(
        self,
        published: PublishedAgents,
        runs: AdapterRuns,
        uploads: Uploads,
        tasks: Tasks,
        resources: Resources,
        followed: FollowedChats,
        timeouts: StreamTimeouts,
    ) -> None:
        self._published = published
        self._runs = runs
        self._uploads = uploads
        self._tasks = tasks
        self._resources = resources
        self._followed = followed
        self._timeouts = timeouts
        self._calls: dict[tuple[str, ...], list[ToolCall]] = {}
        """Running calls on this facade, so that a client can cancel them, by tenant, user, session and request id.

        Requests of one user without a session id may share a key.
        """

    async def answer(self, request: web.Request) -> web.StreamResponse:
        message, message_id = None, None
        try:
            given = decode_body(await read_body(request))
            message_id = given.get("id")
            message = parse_message(request, given)
            return await self._answer(request, message)
        except (McpError, HeadraceError, grpc.aio.AioRpcError) as error:
            if has_begun(request):
                raise  # the stream has reported it
            failure = _convert_failure(error)
        is_early = message is None or message.is_modern
        status = STATUS.get(failure.code, 200) if is_early else 200
        return _json_response(build_error(message_id, failure), status)

    async def _answer(self, request: web.Request, message: Message) -> web.StreamResponse:
        if not message.method:
            return await self._take_response(message)
        if message.id is None:
            if message.method == "notifications/cancelled" and not message.is_modern:
                calls = self._calls.get(self._make_key(request, message.params.get("requestId")), [])
                if len(calls) == 1 and calls[0].run_id:
                    await self._runs.abandon_run(calls[0].run_id)
            return web.Response(status=202)
        if message.method == "tools/call":
            return await self._call_tool(request, message)
        if message.method == "tasks/result":
            return await self._follow_task(request, message)
        if message.method == "subscriptions/listen" and message.is_modern:
            return await self._listen(request, message)
        answer = _json_response(build_result(message, await self._get_result(message), SERVER))
        if message.method == "initialize":
            declared = message.params.get("capabilities")
            can_elicit = isinstance(declared, dict) and "elicitation" in declared
            answer.headers[SESSION_ID] = make_session_id(can_elicit=can_elicit)
        return answer

    async def _get_result(self, message: Message) -> dict[str, Any]:
        private = {"ttlMs": 0, "cacheScope": "private"} if message.is_modern else {}
        match message.method:
            case "initialize" if not message.is_modern:
                version = message.params.get("protocolVersion")
                agreed = version if version in HANDSHAKE else HANDSHAKE[0]
                capabilities = TASK_CAPABILITIES if agreed == HANDSHAKE[0] else CAPABILITIES
                return {"protocolVersion": agreed, "capabilities": capabilities, "serverInfo": SERVER}
            case "server/discover" if message.is_modern:
                return {"supportedVersions": [MODERN, *HANDSHAKE], "capabilities": MODERN_CAPABILITIES} | private
            case "ping" if not message.is_modern:
                return {}
            case "tools/list":
                may_be_tasks = message.knows_tasks and not message.is_modern
                tools = build_tools(await self._published.list_agents(), may_be_tasks=may_be_tasks)
                return {"tools": tools} | private
            case "prompts/list":
                return {"prompts": build_prompts(await self._published.list_agents())} | private
            case "prompts/get":
                return get_prompt(await self._published.list_agents(), message.params.get("name"))
            case "resources/templates/list":
                return {"resourceTemplates": TEMPLATES} | private
            case "resources/list":
                keys = await self._list_keys()
                return await self._resources.list_resources(keys, message.params.get("cursor")) | private
            case "resources/read":
                keys = await self._list_keys()
                missing = BAD_PARAMS if message.is_modern else NO_RESOURCE
                return await self._resources.read_resource(keys, message.params.get("uri"), missing) | private
            case method if method.startswith("tasks/"):
                return await self._tasks.answer(message, await self._list_keys())
            case _:
                raise McpError(NO_METHOD, f"no method {message.method[:64]!r} in this version")

    async def _call_tool(self, request: web.Request, message: Message) -> web.StreamResponse:
        try:
            agent = await self._published.get_agent(str(message.params.get("name")))
        except NotFound as error:
            raise McpError(BAD_PARAMS, f"unknown tool: {error.message}") from error
        if is_task_wanted(message):
            task = await self._tasks.create_task(message, await self._make_query(agent, message))
            return _json_response(build_result(message, task, SERVER))
        view, writer = RunView(), FrameWriter(request, self._timeouts)
        call = ToolCall(message, writer, view)
        source = await self._open_run(agent, message, view)

        async def follow() -> None:
            async with call.tell_time():
                await pipe_run(source, call)
            await writer.write_frame(encode_frame(build_result(message, view.build_result(), SERVER)))

        key = self._make_key(request, message.id)
        self._calls.setdefault(key, []).append(call)
        try:
            return await send_stream(writer, follow(), _make_encoder(message), tells_breaks=True)
        finally:
            self._calls[key].remove(call)
            if not self._calls[key]:
                del self._calls[key]
            if call.run_id and not call.is_over and not call.is_waiting:
                await self._runs.abandon_run(call.run_id)  # no other client could find it

    async def _follow_task(self, request: web.Request, message: Message) -> web.StreamResponse:
        """Answer tasks/result: elicit the task's open gates, then return the result of its tool call."""
        check_method(message)
        run = await self._tasks.find_run(message, await self._list_keys())
        view, writer = await self._tasks.look(run), FrameWriter(request, self._timeouts)
        related = build_related(run.run_id)
        call = ToolCall(message, writer, view, related)

        async def follow() -> None:
            for gate in view.gates:
                call.ask(gate)
            if not view.is_over:
                async with call.tell_time():
                    await pipe_run(self._runs.attach_run(run.run_id, view.fold.last_seq), call)
            result = view.build_result() | {"_meta": related}
            await writer.write_frame(encode_frame(build_result(message, result, SERVER)))

        return await send_stream(writer, follow(), _make_encoder(message), tells_breaks=True)

    async def _listen(self, request: web.Request, message: Message) -> web.StreamResponse:
        keys, writer = await self._list_keys(), FrameWriter(request, self._timeouts)
        telling = Subscription(self._followed, message, writer).tell_changes(self._resources, keys)
        return await send_stream(writer, telling, _make_encoder(message), tells_breaks=True)

    async def _open_run(self, agent: agent_pb2.Agent, message: Message, view: RunView) -> Any:
        """Start a run, or answer the run that an earlier request started, and return its stream."""
        run_id, given = message.params.get("requestState"), message.params.get("inputResponses") or {}
        if run_id is None:
            return self._runs.start_run(await self._make_query(agent, message))
        if not isinstance(run_id, str) or not isinstance(given, dict):
            raise McpError(BAD_PARAMS, "requestState and inputResponses: must be those of the last result")
        await self._runs.get_run(run_id, [agent.key])
        answers = []
        for name, response in given.items():
            ref = parse_gate_ref(name)
            if ref is None or ref.run_id != run_id or not isinstance(response, dict):
                raise McpError(BAD_PARAMS, "inputResponses: must have the names of the last result's inputRequests")
            answers.append(read_response(ref, response, "inputResponses"))
        await self._runs.answer_run(answers)
        view.answered = frozenset(answer.gate_id for answer in answers)
        return self._runs.attach_run(run_id)

    async def _make_query(self, agent: agent_pb2.Agent, message: Message) -> agent_pb2.QueryRequest:
        """Return the query of a call, with its files uploaded."""
        query, attachments = read_query(agent, message.params.get("arguments"))
        if attachments:
            query.chat_id, references = await self._uploads.store_attachments(attachments, query.chat_id)
            query.references.extend(references)
        return query

    async def _take_response(self, message: Message) -> web.StreamResponse:
        """Submit the answer to an elicitation; the call continues in its own stream, perhaps on another replica."""
        ref = parse_gate_ref(str(message.id))
        if ref is not None:
            await self._runs.get_run(ref.run_id, await self._list_keys())
            await self._runs.answer_run([read_response(ref, message.result, "result")])
        return web.Response(status=202)

    def _make_key(self, request: web.Request, request_id: Any) -> tuple[str, ...]:
        caller = identity.require_identity()
        return caller.tenant, caller.user, request.headers.get(SESSION_ID, ""), repr(request_id)

    async def _list_keys(self) -> list[str]:
        return [agent.key for agent in await self._published.list_agents()]


def _make_encoder(message: Message) -> ErrorEncoder:
    def encode_failure(failure: common_pb2.Failure) -> bytes:
        data = {"reason": failure.code, "retriable": failure.retriable}
        return encode_frame(build_error(message.id, McpError(OTHER, failure.message, data)))

    return encode_failure


def _convert_failure(error: McpError | HeadraceError | grpc.aio.AioRpcError) -> McpError:
    if isinstance(error, grpc.aio.AioRpcError):
        known = from_rpc_error(error)
        return convert_error(known) if known else McpError(OTHER, envelope.describe_error(error).message)
    return convert_error(error) if isinstance(error, HeadraceError) else error


def _json_response(body: bytes, status: int = 200) -> web.Response:
    return web.Response(body=body, status=status, content_type="application/json", charset="utf-8")
