"""A2A over gRPC: the same operations as the HTTP bindings; the request's `tenant` is the agent key."""

from __future__ import annotations

from typing import Any, TypeAlias, TypeVar

import grpc
from google.protobuf import json_format
from google.protobuf.empty_pb2 import Empty
from google.protobuf.message import Message
from google.rpc import error_details_pb2, status_pb2

from headrace.a2a import a2a_pb2, a2a_pb2_grpc
from headrace.errors import HeadraceError
from headrace.v1 import agent_pb2
from services.facade.a2a.operations import Operations
from services.facade.a2a.protocol import (
    CURSOR,
    DOMAIN,
    EXTENSIONS_HEADER,
    LAST_EVENT_ID,
    VERSION_HEADER,
    A2aError,
    asks_for_cursors,
    check_version,
    convert_error,
    parse_cursor,
)
from services.facade.a2a.task_view import ANSWER, TaskView
from services.facade.adapters.runs import PublishedAgents
from services.runtime.rpc.push_stream import MessageSink, opening_sink
from services.runtime.rpc.server import GrpcService

NAME: str = a2a_pb2.DESCRIPTOR.services_by_name["A2AService"].full_name

INTERNAL_CODE = -32603

Reply = TypeVar("Reply", bound=Message)

# Any: the stubs want every RPC implemented, by synchronous functions.
_A2aServicer: Any = a2a_pb2_grpc.A2AServiceServicer

Context: TypeAlias = grpc.aio.ServicerContext[Any, Any]

STATUS_DETAILS = "grpc-status-details-bin"
"""Defined here because importing the constant would also register the gRPC metrics, which a facade does not
report.
"""


def make_grpc_service(published: PublishedAgents, operations: Operations) -> GrpcService:
    return GrpcService(NAME, _A2aService(published, operations), a2a_pb2_grpc.add_A2AServiceServicer_to_server)


class _A2aService(_A2aServicer):
    def __init__(self, published: PublishedAgents, operations: Operations) -> None:
        self._published = published
        self._operations = operations

    async def SendMessage(self, request: Message, context: Context) -> Message:
        return await self._answer("SendMessage", request, a2a_pb2.SendMessageResponse, context)

    async def GetTask(self, request: Message, context: Context) -> Message:
        return await self._answer("GetTask", request, a2a_pb2.Task, context)

    async def ListTasks(self, request: Message, context: Context) -> Message:
        return await self._answer("ListTasks", request, a2a_pb2.ListTasksResponse, context)

    async def CancelTask(self, request: Message, context: Context) -> Message:
        return await self._answer("CancelTask", request, a2a_pb2.Task, context)

    async def CreateTaskPushNotificationConfig(self, request: Message, context: Context) -> Message:
        name = "CreateTaskPushNotificationConfig"
        return await self._answer(name, request, a2a_pb2.TaskPushNotificationConfig, context)

    async def GetTaskPushNotificationConfig(self, request: Message, context: Context) -> Message:
        name = "GetTaskPushNotificationConfig"
        return await self._answer(name, request, a2a_pb2.TaskPushNotificationConfig, context)

    async def ListTaskPushNotificationConfigs(self, request: Message, context: Context) -> Message:
        name = "ListTaskPushNotificationConfigs"
        return await self._answer(name, request, a2a_pb2.ListTaskPushNotificationConfigsResponse, context)

    async def DeleteTaskPushNotificationConfig(self, request: Message, context: Context) -> Message:
        return await self._answer("DeleteTaskPushNotificationConfig", request, Empty, context)

    async def GetExtendedAgentCard(self, request: Message, context: Context) -> Message:
        return await self._answer("GetExtendedAgentCard", request, a2a_pb2.AgentCard, context)

    # Coroutines that write to the call's sink, so that an event costs no task switch.

    async def SendStreamingMessage(self, request: Message, context: Context) -> int:
        return await self._follow("SendStreamingMessage", request, context, 0)

    async def SubscribeToTask(self, request: Message, context: Context) -> int:
        try:
            known_seq = parse_cursor(_find(context, LAST_EVENT_ID))
        except A2aError as error:
            await _abort(context, error)
            raise  # unreachable: _abort has raised
        return await self._follow("SubscribeToTask", request, context, known_seq)

    async def _find_agent(self, tenant: str) -> agent_pb2.Agent:
        """Return the agent with this key; without a key, the only published agent, since some clients cannot
        send a tenant.
        """
        agents = () if tenant else await self._published.list_agents()
        return agents[0] if len(agents) == 1 else await self._published.get_agent(tenant)

    async def _answer(self, method: str, request: Any, reply: type[Reply], context: Context) -> Reply:
        try:
            check_version(_find(context, VERSION_HEADER))
            agent = await self._find_agent(request.tenant)
            result = await self._operations.answer_call(agent.key, method, json_format.MessageToDict(request))
        except (A2aError, HeadraceError) as error:
            await _abort(context, error)
            raise
        return json_format.ParseDict(result, reply())

    async def _follow(self, method: str, request: Any, context: Context, known_seq: int) -> int:
        try:
            check_version(_find(context, VERSION_HEADER))
            agent = await self._find_agent(request.tenant)
            async with opening_sink(context) as sink:
                events = _ProtoEvents(sink, has_cursors=asks_for_cursors(_find(context, EXTENSIONS_HEADER)))
                params = json_format.MessageToDict(request)
                await self._operations.follow_task(agent.key, method, params, TaskView(events, known_seq))
                return events.count
        except (A2aError, HeadraceError) as error:
            await _abort(context, error)
            raise


class _ProtoEvents:
    """An event sink for a call's reader."""

    def __init__(self, sink: MessageSink, *, has_cursors: bool) -> None:
        self._sink = sink
        self._has_cursors = has_cursors
        self.count = 0
        self.wait_until_drained = sink.wait_until_drained

    def send_event(self, event: dict[str, Any], seq: int) -> bool:
        return self._send(json_format.ParseDict(event, a2a_pb2.StreamResponse()), seq)

    def send_piece(self, ids: dict[str, str], text: str, seq: int, *, append: bool) -> bool:
        artifact = a2a_pb2.Artifact(artifact_id=ANSWER, parts=[a2a_pb2.Part(text=text)])
        update = a2a_pb2.TaskArtifactUpdateEvent(
            task_id=ids["taskId"], context_id=ids["contextId"], artifact=artifact, append=append
        )
        return self._send(a2a_pb2.StreamResponse(artifact_update=update), seq)

    def _send(self, event: a2a_pb2.StreamResponse, seq: int) -> bool:
        if self._has_cursors:
            getattr(event, event.WhichOneof("payload") or "").metadata[CURSOR] = str(seq)
        self.count += 1
        return self._sink.send(event.SerializeToString())


def _find(context: Context, header: str) -> str | None:
    """Return a service parameter, which the gRPC binding sends as metadata and the HTTP bindings as a header."""
    name = header.lower()
    return next((str(value) for key, value in context.invocation_metadata() or () if key == name), None)


async def _abort(context: Context, error: A2aError | HeadraceError) -> None:
    """Abort the call with the A2A error.

    Returns only for an internal error: the caller then raises the original exception for the interceptor to report.
    """
    failure = convert_error(error) if isinstance(error, HeadraceError) else error
    if failure.kind.code == INTERNAL_CODE:
        return
    code = grpc.StatusCode[failure.kind.name]
    status = status_pb2.Status(code=code.value[0], message=failure.message)
    info = error_details_pb2.ErrorInfo(reason=failure.kind.reason, domain=DOMAIN, metadata=failure.metadata)
    status.details.add().Pack(info)
    await context.abort(code, failure.message, ((STATUS_DETAILS, status.SerializeToString()),))
