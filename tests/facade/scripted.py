"""A facade over real sockets whose peers are scripted: real gRPC servers that do what a test says."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import aiohttp

from headrace.errors import HeadraceError, NotFound
from headrace.sse import SseFrame, SseReader
from headrace.v1 import agent_pb2, agent_pb2_grpc, common_pb2, memory_pb2, memory_pb2_grpc, tools_pb2, tools_pb2_grpc
from services.runtime.process.config import ServerSettings
from services.runtime.rpc.interceptors import Context
from services.runtime.rpc.server import GrpcService
from services.runtime.rpc.server import serving_grpc as serving_rpcs
from tests.conformance.fronts import DEFAULTS, PEERS, Front, Timing, embedded

RUN, CHAT = "11111111-1111-4111-8111-111111111111", "22222222-2222-4222-8222-222222222222"
BLOCK = f"{RUN}_c_1"
USAGE = common_pb2.Usage(input_tokens=12, output_tokens=5, model_calls=2, tool_calls=1)

# Any: the stubs want every RPC implemented, by synchronous functions.
_AgentServicer: Any = agent_pb2_grpc.AgentServiceServicer
_MemoryServicer: Any = memory_pb2_grpc.MemoryServiceServicer
_ToolServicer: Any = tools_pb2_grpc.ToolServiceServicer

Step: TypeAlias = agent_pb2.AgentDelta | HeadraceError | Exception | asyncio.Event | float
"""An event to send, an error to raise, something to wait for, or seconds to wait."""


def delta(seq: int, **payload: Any) -> agent_pb2.AgentDelta:
    """One event."""
    return agent_pb2.AgentDelta(seq=seq, timestamp=1_700_000_000_000 + seq, **payload)


def text(seq: int, piece: str) -> agent_pb2.AgentDelta:
    """A piece of the answer."""
    return delta(seq, content_delta=agent_pb2.ContentDelta(content_id=BLOCK, delta=piece))


def opening() -> list[Step]:
    """The first events of a run in a new chat."""
    query = agent_pb2.RequestQuery(request_id="q-1", chat_id=CHAT, role="user", message="hi")
    return [
        delta(1, request_query=query),
        delta(2, chat_start=agent_pb2.ChatStart(chat_id=CHAT, chat_name="hi")),
        delta(3, run_start=agent_pb2.RunStart(run_id=RUN, chat_id=CHAT, agent_key="helper")),
    ]


def complete(seq: int) -> agent_pb2.AgentDelta:
    """The end of a run that has its answer."""
    return delta(seq, run_complete=agent_pb2.RunComplete(run_id=RUN, finish_reason="stop", usage=USAGE))


def answering(*pieces: str) -> list[Step]:
    """A whole run that says `pieces`."""
    steps = opening()
    steps.append(delta(4, content_start=agent_pb2.ContentStart(content_id=BLOCK, run_id=RUN)))
    steps += [text(5 + index, piece) for index, piece in enumerate(pieces)]
    seq = 5 + len(pieces)
    return [*steps, delta(seq, content_end=agent_pb2.ContentEnd(content_id=BLOCK)), complete(seq + 1)]


@dataclass
class Script(_AgentServicer):
    """What the orchestrator does, and what it was asked."""

    query: Sequence[Step] = ()
    attaches: list[Sequence[Step]] = field(default_factory=list[Sequence[Step]])
    """One for each Attach; the last one again and again."""

    run: agent_pb2.Run | None = None
    """What GetRun gives; None: a bug of the orchestrator."""

    requests: list[Any] = field(default_factory=list[Any])
    metadata: list[dict[str, str]] = field(default_factory=list[dict[str, str]])
    sent: int = 0
    heard: asyncio.Event = field(default_factory=asyncio.Event)
    closed: asyncio.Event = field(default_factory=asyncio.Event)
    """A stream's generator was closed."""

    cancelled: asyncio.Event = field(default_factory=asyncio.Event)
    submitted: asyncio.Event = field(default_factory=asyncio.Event)

    def _heard(self, request: Any, context: Context) -> None:
        self.requests.append(request)
        self.heard.set()
        self.metadata.append({key: str(value) for key, value in context.invocation_metadata() or ()})

    async def _play(self, steps: Sequence[Step]) -> AsyncGenerator[agent_pb2.AgentDelta]:
        try:
            for step in steps:
                match step:
                    case Exception():
                        raise step
                    case asyncio.Event():
                        await step.wait()
                    case float():
                        await asyncio.sleep(step)
                    case agent_pb2.AgentDelta():
                        self.sent += 1
                        yield step
                    case int():
                        raise AssertionError("seconds are a float")
        finally:
            self.closed.set()

    async def Query(self, request: Any, context: Context) -> AsyncGenerator[agent_pb2.AgentDelta]:
        self._heard(request, context)
        async for event in self._play(self.query):
            yield event

    async def Attach(self, request: Any, context: Context) -> AsyncGenerator[agent_pb2.AgentDelta]:
        self._heard(request, context)
        steps = self.attaches.pop(0) if len(self.attaches) > 1 else self.attaches[0]
        async for event in self._play(steps):
            yield event

    async def Submit(self, request: Any, context: Context) -> agent_pb2.SubmitResponse:
        self._heard(request, context)
        self.submitted.set()
        return agent_pb2.SubmitResponse(accepted=True, status="accepted", run_id=request.run_id)

    async def Steer(self, request: Any, context: Context) -> agent_pb2.SteerResponse:
        self._heard(request, context)
        return agent_pb2.SteerResponse(run_id=request.run_id, status="accepted")

    async def Cancel(self, request: Any, context: Context) -> agent_pb2.CancelResponse:
        self._heard(request, context)
        self.cancelled.set()
        return agent_pb2.CancelResponse(run_id=request.run_id, state="running")

    async def ListAgents(self, request: Any, context: Context) -> agent_pb2.ListAgentsResponse:
        self._heard(request, context)
        return agent_pb2.ListAgentsResponse(
            agents=[agent_pb2.Agent(key="helper", name="Helper", mode="REACT", model="sim-1", tools=["weather"])]
        )

    async def GetAgent(self, request: Any, context: Context) -> agent_pb2.GetAgentResponse:
        self._heard(request, context)
        raise NotFound(f"no agent {request.agent_key!r}", agentKey=request.agent_key)

    async def GetRun(self, request: Any, context: Context) -> agent_pb2.GetRunResponse:
        if self.run is None:
            raise KeyError("secret inside")
        return agent_pb2.GetRunResponse(run=self.run)


@dataclass
class ScriptedMemory(_MemoryServicer):
    """A memory of one chat."""

    chat: memory_pb2.GetChatResponse = field(default_factory=memory_pb2.GetChatResponse)
    deleted: list[str] = field(default_factory=list[str])

    async def ListChats(self, request: Any, context: Context) -> memory_pb2.ListChatsResponse:
        chat = memory_pb2.Chat(
            chat_id=CHAT,
            chat_name="水车 怎么",
            first_agent_key="helper",
            created_at=1_700_000_000_000,
            updated_at=1_700_000_060_000,
        )
        return memory_pb2.ListChatsResponse(chats=[chat], next_page_token="p2")

    async def GetChat(self, request: Any, context: Context) -> memory_pb2.GetChatResponse:
        return self.chat

    async def DeleteChat(self, request: Any, context: Context) -> memory_pb2.DeleteChatResponse:
        self.deleted.append(request.chat_id)
        return memory_pb2.DeleteChatResponse()


VIEWS = {"page": {"html": "<p>你好</p>"}, "form": {"view": '{"size": 12345678901234567890,\n "html": "<p>"}'}}


class ScriptedTools(_ToolServicer):
    """Tools with two views."""

    async def GetViewport(self, request: Any, context: Context) -> tools_pb2.GetViewportResponse:
        if request.viewport_key not in VIEWS:
            raise NotFound(f"view {request.viewport_key!r} does not exist", viewportKey=request.viewport_key)
        return tools_pb2.GetViewportResponse(**VIEWS[request.viewport_key])


@dataclass(frozen=True)
class Suite:
    """A facade and the scripts behind it."""

    url: str
    script: Script
    memory: ScriptedMemory
    http: aiohttp.ClientSession
    """Its base is `url`."""


@asynccontextmanager
async def suite(
    folder: Path, script: Script | None = None, *, front: Front = embedded, timing: Timing = DEFAULTS
) -> AsyncGenerator[Suite]:
    """A running facade; `folder` is for its peers' sockets. Given up after two minutes, which load does not reach."""
    script, memory = script or Script(), ScriptedMemory()
    address = f"unix:{folder}/peer.sock"
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(asyncio.timeout(900))
        settings = ServerSettings(listen=address, drain_s=0)
        await stack.enter_async_context(serving_rpcs(settings, served(script, memory)))
        url = await stack.enter_async_context(front(dict.fromkeys(PEERS, address), timing))
        http = await stack.enter_async_context(aiohttp.ClientSession(url))
        yield Suite(url, script, memory, http)


def served(script: Script, memory: ScriptedMemory) -> list[GrpcService]:
    """What the scripted peer serves."""
    return [
        GrpcService("headrace.v1.AgentService", script, agent_pb2_grpc.add_AgentServiceServicer_to_server),
        GrpcService("headrace.v1.MemoryService", memory, memory_pb2_grpc.add_MemoryServiceServicer_to_server),
        GrpcService(
            "headrace.v1.ToolService",
            ScriptedTools(),
            tools_pb2_grpc.add_ToolServiceServicer_to_server,
        ),
    ]


async def frames_of(response: aiohttp.ClientResponse) -> list[SseFrame]:
    """All frames of a stream, to its end."""
    reader, frames = SseReader(), list[SseFrame]()
    async for chunk in response.content.iter_any():
        frames += reader.feed(chunk)
    return frames + list(reader.finish())
