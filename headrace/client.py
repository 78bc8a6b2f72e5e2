"""The client of a server, over gRPC.

    async with Client() as headrace:
        async with headrace.ask("What is the weather in Paris?", agent_key="assistant") as run:
            async for text in run.text():
                print(text, end="")

With TLS it is Client("host:443", tls=Tls()). A run's stream iterates its events too, and folds them (run_stream.py).

Calls raise a HeadraceError; for a server that cannot be reached it is ProviderUnavailable.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Iterable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from types import TracebackType
from typing import Any, TypeVar

import grpc

from headrace.run_stream import RunStream
from headrace.streams import reading, rpc_errors
from headrace.tls import Tls
from headrace.v1 import agent_pb2, agent_pb2_grpc, common_pb2, memory_pb2, memory_pb2_grpc, tools_pb2, tools_pb2_grpc

Reply = TypeVar("Reply")

UNARY_TIMEOUT_S = 30.0
"""Limit for one answer; streams have none, as a run waits for people."""

UPLOAD_TIMEOUT_S = 600.0
"""As long as the server takes an upload."""

UPLOAD_PIECE_BYTES = 256 * 1024
"""Bytes of one message; the server takes 1 MiB."""

OPTIONS: list[tuple[str, int]] = [
    ("grpc.max_receive_message_length", 64 * 1024 * 1024),  # a chat's whole history is one message
    ("grpc.keepalive_time_ms", 30_000),  # a dead server is noticed while a model thinks
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.enable_http_proxy", 0),  # http_proxy is for the world outside; gRPC would send loopback through it too
]


class Client:
    """Connections to one deployment; tasks of a loop may share it. Open it with `async with`.

    Only calls about whole chats and facts need `memory_address`, only `upload` needs `tools_address`. `token` is an
    API key or a JWT. Without `tls` it goes over the wire in plain text.
    """

    def __init__(
        self,
        address: str = "127.0.0.1:7001",
        *,
        memory_address: str = "127.0.0.1:7003",
        tools_address: str = "127.0.0.1:7004",
        token: str = "",
        tls: Tls | None = None,
    ) -> None:
        self._addresses = (address, memory_address, tools_address)
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
        self._tools: Any = tools_pb2_grpc.ToolServiceStub(self._channels[2])
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
        references: Iterable[common_pb2.Reference] = (),
        client_tools: Iterable[agent_pb2.ClientTool] = (),
        tool_choice: str | None = None,
        parallel_tool_calls: bool | None = None,
        output_format: common_pb2.OutputFormat | None = None,
        history: Iterable[agent_pb2.EarlierMessage] = (),
        progress: Iterable[agent_pb2.EarlierMessage] = (),
    ) -> AbstractAsyncContextManager[RunStream]:
        """Start a run; the block reads its events, the first before any model is called.

        Leaving early lets the run go on, unless `on_disconnect` is "cancel". `params` is JSON text. For an agent with
        both modes, `deep_think` 0 means REACT, any other value PLAN_EXECUTE. With an `output_format` run.complete has
        the answer as JSON text in `output`.
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
            references=references,
            client_tools=client_tools,
            tool_choice=tool_choice,
            parallel_tool_calls=parallel_tool_calls,
            output_format=output_format,
            history=history,
            progress=progress,
        )
        return _following(self._agents.Query(request, metadata=self._metadata))

    def attach(self, run_id: str, last_seq: int = 0) -> AbstractAsyncContextManager[RunStream]:
        """Read a run's events after `last_seq`, and follow it while it runs.

        A stream that ends without run.complete, run.cancel or run.error was cut: attach again with the last event's
        seq; an attempt.reset says what to drop.
        """
        request = agent_pb2.AttachRequest(run_id=run_id, last_seq=last_seq)
        return _following(self._agents.Attach(request, metadata=self._metadata))

    def compact(self, chat_id: str) -> AbstractAsyncContextManager[RunStream]:
        """Summarise a chat; the block reads that run's events."""
        request = agent_pb2.CompactChatRequest(chat_id=chat_id)
        return _following(self._agents.Compact(request, metadata=self._metadata))

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

    async def context(
        self, chat_id: str, *, agent_key: str | None = None, run_id: str | None = None
    ) -> agent_pb2.GetContextResponse:
        """Return what fills the window of a chat's next request, or of a run's, and what has left it."""
        request = agent_pb2.GetContextRequest(chat_id=chat_id, agent_key=agent_key, run_id=run_id)
        return await _await_reply(self._agents.GetContext(request, timeout=UNARY_TIMEOUT_S, metadata=self._metadata))

    async def upload(self, name: str, data: bytes, *, chat_id: str | None = None) -> tools_pb2.UploadFileResponse:
        """Store a file in a chat's uploads, a new chat's without `chat_id`.

        Give what comes back to `ask`: `chat_id`, and `reference` in `references`.
        """

        async def send() -> AsyncIterator[tools_pb2.UploadFileRequest]:
            start = tools_pb2.UploadStart(name=name, chat_id=chat_id, size_bytes=len(data))
            yield tools_pb2.UploadFileRequest(start=start)
            for at in range(0, len(data), UPLOAD_PIECE_BYTES):
                yield tools_pb2.UploadFileRequest(data=data[at : at + UPLOAD_PIECE_BYTES])

        return await _await_reply(self._tools.UploadFile(send(), timeout=UPLOAD_TIMEOUT_S, metadata=self._metadata))

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

    async def checkpoints(
        self, chat_id: str, *, kind: str = "", page_size: int = 0, page_token: str = ""
    ) -> memory_pb2.ListCheckpointsResponse:
        """Return a page of a chat's checkpoints, the latest first; `kind` query or step."""
        request = memory_pb2.ListCheckpointsRequest(
            chat_id=chat_id, kind=kind, page_size=page_size, page_token=page_token
        )
        return await _await_reply(
            self._memory.ListCheckpoints(request, timeout=UNARY_TIMEOUT_S, metadata=self._metadata)
        )

    async def revert(self, chat_id: str, checkpoint_id: int, *, n: int | None = None) -> int:
        """Make a chat as it was at a checkpoint, and return the number of the line that says so.

        With `n`, the checkpoint's line as it was listed, a checkpoint that is another one by now is NotFound.
        """
        request = memory_pb2.RevertRequest(chat_id=chat_id, checkpoint_id=checkpoint_id, n=n)
        call = self._memory.Revert(request, timeout=UNARY_TIMEOUT_S, metadata=self._metadata)
        reply: memory_pb2.RevertResponse = await _await_reply(call)
        return reply.n

    async def pin(self, chat_id: str, n: int, *, remove: bool = False) -> int:
        """Pin the message of a line, or take its pin back; return the number of the line that says so, or 0."""
        request = memory_pb2.PinMessageRequest(chat_id=chat_id, n=n, remove=remove)
        call = self._memory.PinMessage(request, timeout=UNARY_TIMEOUT_S, metadata=self._metadata)
        reply: memory_pb2.PinMessageResponse = await _await_reply(call)
        return reply.n

    async def pins(self, chat_id: str) -> list[memory_pb2.Pin]:
        """Return a chat's pinned messages, in the order of the log."""
        request = memory_pb2.ListPinsRequest(chat_id=chat_id)
        call = self._memory.ListPins(request, timeout=UNARY_TIMEOUT_S, metadata=self._metadata)
        reply: memory_pb2.ListPinsResponse = await _await_reply(call)
        return list(reply.pins)

    async def summary(self, chat_id: str) -> memory_pb2.GetSummaryResponse:
        """Return a chat's summary; its `n` is 0 where nothing was compacted."""
        request = memory_pb2.GetSummaryRequest(chat_id=chat_id)
        return await _await_reply(self._memory.GetSummary(request, timeout=UNARY_TIMEOUT_S, metadata=self._metadata))

    async def edit_summary(self, chat_id: str, n: int, text: str) -> int:
        """Give the summary of line `n` another text; StaleLease when the chat has another one by now."""
        request = memory_pb2.EditSummaryRequest(chat_id=chat_id, n=n, text=text)
        call = self._memory.EditSummary(request, timeout=UNARY_TIMEOUT_S, metadata=self._metadata)
        reply: memory_pb2.EditSummaryResponse = await _await_reply(call)
        return reply.n

    async def state(self, chat_id: str, context_id: str = "") -> memory_pb2.GetStateResponse:
        """Return a context's session state and its version; without `context_id` the chat's own."""
        request = memory_pb2.GetStateRequest(chat_id=chat_id, context_id=context_id)
        return await _await_reply(self._memory.GetState(request, timeout=UNARY_TIMEOUT_S, metadata=self._metadata))

    async def update_state(self, chat_id: str, state: str, expected_version: int, context_id: str = "") -> int:
        """Replace a context's session state, a JSON object, and return its new version.

        Raises StaleLease when the state has another version by now.
        """
        request = memory_pb2.UpdateStateRequest(
            chat_id=chat_id, context_id=context_id, expected_version=expected_version, state=state
        )
        call = self._memory.UpdateState(request, timeout=UNARY_TIMEOUT_S, metadata=self._metadata)
        reply: memory_pb2.UpdateStateResponse = await _await_reply(call)
        return reply.version

    async def remember(self, text: str, *, topic: str = "", request_id: str = "") -> memory_pb2.Fact:
        """Store a fact about the user, which ends an older one of the same topic."""
        request = memory_pb2.RememberRequest(text=text, topic=topic, request_id=request_id)
        call = self._memory.Remember(request, timeout=UNARY_TIMEOUT_S, metadata=self._metadata)
        reply: memory_pb2.RememberResponse = await _await_reply(call)
        return reply.fact

    async def facts(self, *, page_size: int = 0, page_token: str = "") -> memory_pb2.ListFactsResponse:
        """Return a page of valid facts, the newest first."""
        request = memory_pb2.ListFactsRequest(page_size=page_size, page_token=page_token)
        return await _await_reply(self._memory.ListFacts(request, timeout=UNARY_TIMEOUT_S, metadata=self._metadata))

    async def recall(self, query: str, *, limit: int = 0) -> list[memory_pb2.FactHit]:
        """Return the valid facts that hold words of `query`, the best first."""
        request = memory_pb2.RecallFactsRequest(query=query, limit=limit)
        call = self._memory.RecallFacts(request, timeout=UNARY_TIMEOUT_S, metadata=self._metadata)
        reply: memory_pb2.RecallFactsResponse = await _await_reply(call)
        return list(reply.hits)

    async def delete_fact(self, fact_id: str) -> memory_pb2.Fact:
        """Delete a fact; its text has left the store when this returns the tombstone."""
        request = memory_pb2.DeleteFactRequest(fact_id=fact_id)
        call = self._memory.DeleteFact(request, timeout=UNARY_TIMEOUT_S, metadata=self._metadata)
        reply: memory_pb2.DeleteFactResponse = await _await_reply(call)
        return reply.fact


@asynccontextmanager
async def _following(call: Any) -> AsyncGenerator[RunStream]:
    async with reading(call) as deltas:
        yield RunStream(deltas)


async def _await_reply(call: Awaitable[Reply]) -> Reply:
    with rpc_errors():
        return await call
