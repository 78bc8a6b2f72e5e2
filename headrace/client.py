"""The client of a server, over gRPC.

    async with Client() as headrace:
        async with headrace.ask("What is the weather in Paris?", agent_key="assistant") as deltas:
            async for delta in deltas:
                print(delta.content_delta.delta, end="")

With TLS it is Client("host:443", tls=Tls()). `headrace.fold` folds the events of a run into its state.

Calls raise a HeadraceError; for a server that cannot be reached it is ProviderUnavailable.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import Any, TypeVar

import grpc

from headrace.streams import reading, rpc_errors
from headrace.tls import Tls
from headrace.v1 import agent_pb2, agent_pb2_grpc, memory_pb2, memory_pb2_grpc

Reply = TypeVar("Reply")

UNARY_TIMEOUT_S = 30.0
"""Limit for one answer; streams have none, as a run waits for people."""

OPTIONS: list[tuple[str, int]] = [
    ("grpc.max_receive_message_length", 64 * 1024 * 1024),  # a chat's whole history is one message
    ("grpc.keepalive_time_ms", 30_000),  # a dead server is noticed while a model thinks
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.enable_http_proxy", 0),  # http_proxy is for the world outside; gRPC would send loopback through it too
]


class Client:
    """Connections to one deployment; tasks of a loop may share it. Open it with `async with`.

    Only `chats` and `chat` need `memory_address`. `token` is an API key or a JWT. Without `tls` it goes over the wire
    in plain text.
    """

    def __init__(
        self,
        address: str = "127.0.0.1:7001",
        *,
        memory_address: str = "127.0.0.1:7003",
        token: str = "",
        tls: Tls | None = None,
    ) -> None:
        self._addresses = (address, memory_address)
        self._tls = tls
        self._metadata = (("authorization", f"Bearer {token}"),) if token else ()

    async def __aenter__(self) -> Client:
        """Connect; raises OSError when the files of `tls` cannot be used."""
        if self._tls is None:
            self._channels = [grpc.aio.insecure_channel(address, options=OPTIONS) for address in self._addresses]
        else:
            credentials = await asyncio.to_thread(self._tls.credentials)
            self._channels = [
                grpc.aio.secure_channel(address, credentials, options=OPTIONS) for address in self._addresses
            ]
        # Any: the stubs' types know the RPCs of synchronous channels too, and so each as a union.
        self._agents: Any = agent_pb2_grpc.AgentServiceStub(self._channels[0])
        self._memory: Any = memory_pb2_grpc.MemoryServiceStub(self._channels[1])
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for channel in self._channels:
            await channel.close()

    def ask(
        self,
        message: str,
        *,
        agent_key: str | None = None,
        chat_id: str | None = None,
        request_id: str | None = None,
        params: str | None = None,
        on_disconnect: str | None = None,
        when_busy: str | None = None,
        deep_think: int | None = None,
    ) -> AbstractAsyncContextManager[AsyncIterator[agent_pb2.AgentDelta]]:
        """Start a run; the block reads its events, the first before any model is called.

        Leaving early lets the run go on, unless `on_disconnect` is "cancel". `params` is JSON text. For an agent with
        both modes, `deep_think` 0 means REACT, any other value PLAN_EXECUTE.
        """
        request = agent_pb2.QueryRequest(
            message=message,
            agent_key=agent_key,
            chat_id=chat_id,
            request_id=request_id,
            params=params,
            on_disconnect=on_disconnect,
            when_busy=when_busy,
            deep_think=deep_think,
        )
        return reading(self._agents.Query(request, metadata=self._metadata))

    def attach(
        self, run_id: str, last_seq: int = 0
    ) -> AbstractAsyncContextManager[AsyncIterator[agent_pb2.AgentDelta]]:
        """Read a run's events after `last_seq`, and follow it while it runs.

        A stream that ends without run.complete, run.cancel or run.error was cut: attach again with the last event's
        seq; an attempt.reset says what to drop.
        """
        request = agent_pb2.AttachRequest(run_id=run_id, last_seq=last_seq)
        return reading(self._agents.Attach(request, metadata=self._metadata))

    def compact(self, chat_id: str) -> AbstractAsyncContextManager[AsyncIterator[agent_pb2.AgentDelta]]:
        """Summarise a chat; the block reads that run's events."""
        request = agent_pb2.CompactChatRequest(chat_id=chat_id)
        return reading(self._agents.Compact(request, metadata=self._metadata))

    async def submit(
        self, run_id: str, payload: str, *, tool_id: str | None = None, approval_id: str | None = None
    ) -> agent_pb2.SubmitResponse:
        """Send a waiting run a person's decision for a tool or an approval, as JSON text."""
        request = agent_pb2.SubmitRequest(run_id=run_id, payload=payload, tool_id=tool_id, approval_id=approval_id)
        return await _await_reply(self._agents.Submit(request, timeout=UNARY_TIMEOUT_S, metadata=self._metadata))

    async def cancel(self, run_id: str, *, mode: str = "now") -> agent_pb2.CancelResponse:
        """Stop a run "now" or "after_step"; returns when that is under way."""
        request = agent_pb2.CancelRequest(run_id=run_id, mode=mode)
        return await _await_reply(self._agents.Cancel(request, timeout=UNARY_TIMEOUT_S, metadata=self._metadata))

    async def steer(self, run_id: str, message: str, *, request_id: str | None = None) -> agent_pb2.SteerResponse:
        """Send a running run a message, which is stored when this returns."""
        request = agent_pb2.SteerRequest(run_id=run_id, message=message, request_id=request_id)
        return await _await_reply(self._agents.Steer(request, timeout=UNARY_TIMEOUT_S, metadata=self._metadata))

    async def agents(self, tag: str | None = None) -> list[agent_pb2.Agent]:
        """Return the agents, ordered by key."""
        call = self._agents.ListAgents(
            agent_pb2.ListAgentsRequest(tag=tag), timeout=UNARY_TIMEOUT_S, metadata=self._metadata
        )
        reply: agent_pb2.ListAgentsResponse = await _await_reply(call)
        return list(reply.agents)

    async def chats(self, *, page_size: int = 0, page_token: str = "") -> memory_pb2.ListChatsResponse:
        """Return a page of chats, the last changed first."""
        request = memory_pb2.ListChatsRequest(page_size=page_size, page_token=page_token)
        return await _await_reply(self._memory.ListChats(request, timeout=UNARY_TIMEOUT_S, metadata=self._metadata))

    async def chat(self, chat_id: str) -> memory_pb2.GetChatResponse:
        """Return a chat as history events."""
        request = memory_pb2.GetChatRequest(chat_id=chat_id)
        return await _await_reply(self._memory.GetChat(request, timeout=UNARY_TIMEOUT_S, metadata=self._metadata))


async def _await_reply(call: Awaitable[Reply]) -> Reply:
    with rpc_errors():
        return await call
