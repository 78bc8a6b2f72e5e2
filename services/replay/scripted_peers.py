"""Gateway, tools and memory of a replay: each call of the run waits for its recorded answer, other calls get empty
ones."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import grpc
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from headrace.cassette.lines import Cassette
from headrace.cassette.methods import load_answer
from headrace.errors import BY_REASON, HeadraceError, Unsupported
from headrace.v1 import (
    llm_pb2,
    llm_pb2_grpc,
    memory_pb2,
    memory_pb2_grpc,
    schedule_pb2,
    schedule_pb2_grpc,
    tools_pb2,
    tools_pb2_grpc,
)
from services.replay.heard import Heard
from services.runtime.auth.identity import DEFAULT
from services.runtime.process.config import ServerSettings
from services.runtime.rpc.server import GrpcService, serving_grpc

END = object()
"""Marks the regular end of a stream, or an empty answer to a call."""


@dataclass(frozen=True, slots=True)
class Broken:
    """A call that no service ended: its connection broke, or its time ran out."""

    status: str


@dataclass(slots=True)
class ScriptedCalls:
    heard: Heard
    others: dict[str, Message | HeadraceError] = field(default_factory=dict[str, Message | HeadraceError])
    """Answers to RPCs outside of the run, by method; others get an empty answer."""
    is_over: bool = False
    _queues: dict[int, asyncio.Queue[Any]] = field(default_factory=dict[int, "asyncio.Queue[Any]"])

    def say(self, number: int, what: Any) -> None:
        """Queue a message, an error, Broken or END for the call `number` of this replay."""
        self._queue(number).put_nowait(what)

    def listen(self, method: str) -> asyncio.Queue[Any] | None:
        """Return the queue of an RPC's answers; None if the cassette has no such call."""
        call = self.heard.take_rpc(method)
        return None if call is None or self.is_over else self._queue(call.number)

    def end_all(self) -> None:
        """End all waiting calls: the replay is over, and its orchestrator must stop."""
        self.is_over = True
        for queue in self._queues.values():
            queue.put_nowait(END)

    def _queue(self, number: int) -> asyncio.Queue[Any]:
        return self._queues.setdefault(number, asyncio.Queue())


class _Peer:
    """A servicer with a method for each RPC of a service."""

    def __init__(self, descriptor: Any, calls: ScriptedCalls) -> None:
        for method in descriptor.methods:
            handle = _make_stream(calls, f"{descriptor.name}/{method.name}")
            if not method.server_streaming:
                empty = GetMessageClass(method.output_type)
                handle = _make_unary(calls, f"{descriptor.name}/{method.name}", empty)
            setattr(self, method.name, handle)


def _make_unary(calls: ScriptedCalls, method: str, empty: Callable[[], Message]) -> Any:
    async def answer(request: Any, context: Any) -> Message:
        queue = calls.listen(method)
        message: Any = calls.others.get(method, END) if queue is None else await _take(queue, context)
        if isinstance(message, HeadraceError):
            raise message
        return empty() if message is END else message

    return answer


def _make_stream(calls: ScriptedCalls, method: str) -> Any:
    async def generate(request: Any, context: Any) -> AsyncGenerator[Message]:
        queue = calls.listen(method)
        while queue is not None and (message := await _take(queue, context)) is not END:
            yield message

    return generate


async def _take(queue: asyncio.Queue[Any], context: Any) -> Any:
    what = await queue.get()
    if isinstance(what, Broken):
        await context.abort(grpc.StatusCode[what.status], "as it was recorded")
    if isinstance(what, HeadraceError):
        raise what
    return what


def make_error(failure: dict[str, Any]) -> HeadraceError:
    """Return the recorded error; raises ValueError for an unknown reason."""
    kind = BY_REASON.get(failure["reason"])
    if kind is None:
        raise ValueError(f"there is no error {failure['reason']!r}")
    retry_after_ms = failure.get("retryAfterMs")
    error = kind(failure["message"], retry_after_s=None if retry_after_ms is None else retry_after_ms / 1000)
    error.metadata = dict(failure.get("metadata", {}))
    return error


SERVED: dict[str, list[tuple[Any, Any]]] = {
    "local:llm_gateway": [
        (llm_pb2.DESCRIPTOR.services_by_name["LlmService"], llm_pb2_grpc.add_LlmServiceServicer_to_server)
    ],
    "local:tools": [
        (tools_pb2.DESCRIPTOR.services_by_name["ToolService"], tools_pb2_grpc.add_ToolServiceServicer_to_server)
    ],
    "local:memory": [
        (memory_pb2.DESCRIPTOR.services_by_name["MemoryService"], memory_pb2_grpc.add_MemoryServiceServicer_to_server),
        (
            schedule_pb2.DESCRIPTOR.services_by_name["ScheduleService"],
            schedule_pb2_grpc.add_ScheduleServiceServicer_to_server,
        ),
    ],
}


@asynccontextmanager
async def serving_peers(calls: ScriptedCalls, serve: Callable[[str], ServerSettings]) -> AsyncGenerator[None]:
    async with AsyncExitStack() as stack:
        for address, services in SERVED.items():
            served = [GrpcService(kind.full_name, _Peer(kind, calls), add) for kind, add in services]
            await stack.enter_async_context(serving_grpc(serve(address), served))
        yield


def answer_setup_calls(cassette: Cassette) -> dict[str, Message | HeadraceError]:
    """Return the answers to RPCs before the run: available tools and skills, and the agent's version number."""
    version = cassette.version or {}
    unknown = Unsupported("the version does not say it")
    answers: dict[str, Message | HeadraceError] = {
        "MemoryService/PutAgentVersion": memory_pb2.PutAgentVersionResponse(version=version.get("version", 0)),
        "MemoryService/ReadAgentChanges": memory_pb2.ReadAgentChangesResponse(
            agents=[
                memory_pb2.AgentRecord(
                    tenant=DEFAULT.tenant, agent_key=key, definition=json.dumps(cassette.agents[key]), version=1
                )
                for key in sorted(cassette.own_agents)
            ]
        ),
    }
    for name, kind in (("tools", "ListTools"), ("skills", "ListSkills")):
        known = {name: version[name]} if name in version else None
        answers[f"ToolService/{kind}"] = unknown if known is None else load_answer(f"ToolService/{kind}", known)
    return answers
