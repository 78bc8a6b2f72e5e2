"""The client of a server, over gRPC.

    async with Client() as headrace:
        async with headrace.ask("What is the weather in Paris?", agent_key="assistant") as run:
            async for text in run.text():
                print(text, end="")

With TLS it is Client("host:443", tls=Tls()). A run's stream iterates its events too, folds them, and goes on by itself
when it is cut (run_stream.py). Programs without an event loop have the same calls in `headrace.sync.client`.

Calls raise a HeadraceError; for a server that cannot be reached it is ProviderUnavailable.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Iterable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from types import TracebackType
from typing import Any

import grpc

from headrace.calls.agents import AgentCalls
from headrace.calls.audit import AuditCalls
from headrace.calls.chats import ChatCalls
from headrace.calls.data import DataCalls
from headrace.calls.facts import FactCalls
from headrace.calls.gates import GateCalls
from headrace.calls.keys import KeyCalls
from headrace.calls.operators import OperatorCalls
from headrace.calls.schedules import ScheduleCalls
from headrace.calls.spend import SpendCalls
from headrace.calls.webhooks import WebhookCalls
from headrace.run_stream import ChatStream, RunStream
from headrace.streams import reading
from headrace.tls import Tls
from headrace.v1 import (
    agent_pb2,
    agent_pb2_grpc,
    audit_pb2_grpc,
    common_pb2,
    data_pb2_grpc,
    gates_pb2_grpc,
    keys_pb2_grpc,
    memory_pb2_grpc,
    operator_pb2_grpc,
    schedule_pb2_grpc,
    spend_pb2_grpc,
    tools_pb2,
    tools_pb2_grpc,
    webhook_pb2_grpc,
)

REATTACH_S = 60.0
"""How long a stream that was cut is tried to be opened again: longer than a replica takes to restart."""

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


class Client(
    AgentCalls,
    AuditCalls,
    ChatCalls,
    DataCalls,
    FactCalls,
    GateCalls,
    KeyCalls,
    OperatorCalls,
    ScheduleCalls,
    SpendCalls,
    WebhookCalls,
):
    """Connections to one deployment; tasks of a loop may share it. Open it with `async with`.

    Only calls about whole chats, facts, keys, schedules, webhooks and what is spent need `memory_address`, only
    `upload` needs `tools_address`. `token` is an API key or a JWT. Without `tls` it goes over the wire in plain text.
    A run's stream that is cut is opened again for `reattach_s` seconds, and not at all for 0. With `channel`, all calls
    go over that one, which stays open, and addresses and `tls` mean nothing.
    """

    def __init__(
        self,
        address: str = "127.0.0.1:7001",
        *,
        memory_address: str = "127.0.0.1:7003",
        tools_address: str = "127.0.0.1:7004",
        token: str = "",
        tls: Tls | None = None,
        reattach_s: float = REATTACH_S,
        channel: grpc.aio.Channel | None = None,
    ) -> None:
        token = token.strip()  # a file or a variable of another program may end with a line's end
        if not (token.isascii() and token.isprintable()):
            raise ValueError("token: has a character that no credential has")
        self._addresses = (address, memory_address, tools_address)
        self._tls = tls
        self._reattach_s = reattach_s
        self._given_channel = channel
        self._channels: list[grpc.aio.Channel] = []
        self._metadata = (("authorization", f"Bearer {token}"),) if token else ()

    async def __aenter__(self) -> Client:
        """Connect; raises OSError when the files of `tls` cannot be used."""
        orchestrator, memory, tools = await self._open_channels()
        # Any: the stubs' types know the RPCs of both kinds of channels, and so each as a union.
        self._agents: Any = agent_pb2_grpc.AgentServiceStub(orchestrator)
        self._data: Any = data_pb2_grpc.DataServiceStub(orchestrator)
        self._gates: Any = gates_pb2_grpc.GateServiceStub(orchestrator)
        self._operating: Any = operator_pb2_grpc.OperatorServiceStub(orchestrator)
        self._audit: Any = audit_pb2_grpc.AuditServiceStub(memory)
        self._keys: Any = keys_pb2_grpc.KeyServiceStub(memory)
        self._memory: Any = memory_pb2_grpc.MemoryServiceStub(memory)
        self._schedules: Any = schedule_pb2_grpc.ScheduleServiceStub(memory)
        self._spend: Any = spend_pb2_grpc.SpendServiceStub(memory)
        self._webhooks: Any = webhook_pb2_grpc.WebhookServiceStub(memory)
        self._tools: Any = tools_pb2_grpc.ToolServiceStub(tools)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for channel in self._channels:
            await channel.close()

    async def _open_channels(self) -> list[grpc.aio.Channel]:
        """Return the channels to orchestrator, memory and tools."""
        if self._given_channel is not None:
            return [self._given_channel] * len(self._addresses)
        if self._tls is None:
            self._channels = [grpc.aio.insecure_channel(address, options=OPTIONS) for address in self._addresses]
        else:
            credentials = await asyncio.to_thread(self._tls.credentials)
            self._channels = [
                grpc.aio.secure_channel(address, credentials, options=OPTIONS) for address in self._addresses
            ]
        return self._channels

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
        record: bool | None = None,
        agent_version: int | None = None,
        trial: agent_pb2.AgentTrial | None = None,
        from_program: bool | None = None,
        chat_key: str | None = None,
    ) -> AbstractAsyncContextManager[RunStream]:
        """Start a run; the block reads its events, the first before any model is called, and goes on when they are cut.

        Leaving early lets the run go on, unless `on_disconnect` is "cancel". `params` is JSON text. For an agent with
        both modes, `deep_think` 0 means REACT, any other value PLAN_EXECUTE. With an `output_format` run.complete has
        the answer as JSON text in `output`. With `record` the run is kept for `cassette`. An `agent_version` that is
        not in force needs the scope `operate`, a `trial` of another model or prompt the scope `publish`. A message
        `from_program` mentions nothing. A `chat_key` is the user's own name of the chat, in place of `chat_id`.
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
            record=record,
            agent_version=agent_version,
            trial=trial,
            from_program=from_program,
            chat_key=chat_key,
        )
        return self._follow(self._agents.Query(request, metadata=self._metadata))

    def attach(self, run_id: str, last_seq: int = 0) -> AbstractAsyncContextManager[RunStream]:
        """Read a run's events after `last_seq`, and follow it while it runs.

        A stream that ends without run.complete, run.cancel or run.error was cut for longer than the client tries to
        open it again: attach once more with the last event's seq; an attempt.reset says what to drop.
        """
        return self._follow(self._attach(run_id, last_seq), run_id)

    @asynccontextmanager
    async def follow_chat(self, chat_id: str, cursor: str = "") -> AsyncGenerator[ChatStream]:
        """Read the events of all runs of a chat after `cursor`, and those of later runs as they come.

        Without a cursor it begins with the chat's first event. Keep `cursor` of the stream, or of its last event, to
        continue later: each event comes once. A stream that ends was cut for longer than the client tries to open it
        again.
        """
        async with AsyncExitStack() as calls:

            async def follow(cursor: str) -> AsyncIterator[agent_pb2.FollowDelta]:
                request = agent_pb2.FollowRequest(chat_id=chat_id, cursor=cursor or None)
                call = self._agents.Follow(request, metadata=self._metadata)
                return await calls.enter_async_context(reading(call))

            yield ChatStream(await follow(cursor), follow, self._reattach_s, cursor)

    def compact(self, chat_id: str) -> AbstractAsyncContextManager[RunStream]:
        """Summarise a chat; the block reads that run's events."""
        request = agent_pb2.CompactChatRequest(chat_id=chat_id)
        return self._follow(self._agents.Compact(request, metadata=self._metadata))

    async def submit(
        self, run_id: str, payload: str, *, tool_id: str | None = None, approval_id: str | None = None
    ) -> agent_pb2.SubmitResponse:
        """Send a waiting run a person's decision for a tool or an approval, as JSON text."""
        request = agent_pb2.SubmitRequest(run_id=run_id, payload=payload, tool_id=tool_id, approval_id=approval_id)
        return await self._send(self._agents.Submit, request)

    async def run(self, run_id: str) -> agent_pb2.Run:
        """Return what is known of a run: its state, times, usage."""
        reply: agent_pb2.GetRunResponse = await self._send(self._agents.GetRun, agent_pb2.GetRunRequest(run_id=run_id))
        return reply.run

    async def chat_runs(self, chat_id: str, *, page_size: int = 0, page_token: str = "") -> agent_pb2.ListRunsResponse:
        """Return a page of a chat's runs."""
        request = agent_pb2.ListRunsRequest(chat_id=chat_id, page_size=page_size, page_token=page_token)
        return await self._send(self._agents.ListRuns, request)

    async def cancel(self, run_id: str, *, mode: str = "now") -> agent_pb2.CancelResponse:
        """Stop a run "now" or "after_step"; returns when that is under way."""
        request = agent_pb2.CancelRequest(run_id=run_id, mode=mode)
        return await self._send(self._agents.Cancel, request)

    async def steer(self, run_id: str, message: str, *, request_id: str | None = None) -> agent_pb2.SteerResponse:
        """Send a running run a message, which is stored when this returns."""
        request = agent_pb2.SteerRequest(run_id=run_id, message=message, request_id=request_id)
        return await self._send(self._agents.Steer, request)

    async def context(
        self, chat_id: str, *, agent_key: str | None = None, run_id: str | None = None
    ) -> agent_pb2.GetContextResponse:
        """Return what fills the window of a chat's next request, or of a run's, and what has left it."""
        request = agent_pb2.GetContextRequest(chat_id=chat_id, agent_key=agent_key, run_id=run_id)
        return await self._send(self._agents.GetContext, request)

    async def cassette(self, run_id: str) -> list[str]:
        """Return the lines of an ended run's recording (docs/reference/cassette.md)."""
        lines: list[str] = []
        request = agent_pb2.GetCassetteRequest(run_id=run_id)
        while True:
            page: agent_pb2.GetCassetteResponse = await self._send(self._agents.GetCassette, request)
            lines += page.lines
            if not page.next_page_token:
                return lines
            request.page_token = page.next_page_token

    async def upload(self, name: str, data: bytes, *, chat_id: str | None = None) -> tools_pb2.UploadFileResponse:
        """Store a file in a chat's uploads, a new chat's without `chat_id`.

        Give what comes back to `ask`: `chat_id`, and `reference` in `references`.
        """

        async def send() -> AsyncIterator[tools_pb2.UploadFileRequest]:
            start = tools_pb2.UploadStart(name=name, chat_id=chat_id, size_bytes=len(data))
            yield tools_pb2.UploadFileRequest(start=start)
            for at in range(0, len(data), UPLOAD_PIECE_BYTES):
                yield tools_pb2.UploadFileRequest(data=data[at : at + UPLOAD_PIECE_BYTES])

        return await self._send(self._tools.UploadFile, send(), UPLOAD_TIMEOUT_S)

    async def complete_authorization(
        self, state: str, code: str, issuer: str | None = None
    ) -> tools_pb2.CompleteAuthorizationResponse:
        """Pass on what an authorization server has sent the user's browser back with, as the page at redirectUrl.

        The MCP server acts for the caller from now on.
        """
        request = tools_pb2.CompleteAuthorizationRequest(state=state, code=code, issuer=issuer)
        return await self._send(self._tools.CompleteAuthorization, request)

    async def authorizations(self) -> list[tools_pb2.Authorization]:
        """Return where the caller has authorized Headrace, ordered by MCP server."""
        request = tools_pb2.ListAuthorizationsRequest()
        reply: tools_pb2.ListAuthorizationsResponse = await self._send(self._tools.ListAuthorizations, request)
        return list(reply.authorizations)

    async def revoke_authorization(self, server: str) -> bool:
        """Take the caller's authorization of an MCP server back; raises NotFound where there is none.

        Returns whether the authorization server says that it has forgotten the tokens, too.
        """
        request = tools_pb2.RevokeAuthorizationRequest(server=server)
        reply: tools_pb2.RevokeAuthorizationResponse = await self._send(self._tools.RevokeAuthorization, request)
        return reply.revoked_at_issuer

    async def agents(self, tag: str | None = None) -> list[agent_pb2.Agent]:
        """Return the agents, ordered by key."""
        request = agent_pb2.ListAgentsRequest(tag=tag)
        reply: agent_pb2.ListAgentsResponse = await self._send(self._agents.ListAgents, request)
        return list(reply.agents)

    async def agent_versions(self, agent_key: str, *, before: int = 0) -> list[agent_pb2.AgentVersion]:
        """Return the agent's newest 50 versions, or those before a version, the newest first."""
        request = agent_pb2.ListAgentVersionsRequest(agent_key=agent_key, before=before)
        reply: agent_pb2.ListAgentVersionsResponse = await self._send(self._agents.ListAgentVersions, request)
        return list(reply.versions)

    async def agent_version(self, agent_key: str, version: int = 0) -> agent_pb2.GetAgentVersionResponse:
        """Return a version of the agent, or the newest. It needs the scope `operate`."""
        request = agent_pb2.GetAgentVersionRequest(agent_key=agent_key, version=version)
        return await self._send(self._agents.GetAgentVersion, request)

    async def diff_agent_versions(
        self, agent_key: str, from_version: int = 0, to_version: int = 0
    ) -> list[agent_pb2.AgentChange]:
        """Return what differs between two versions, or the newest and the one before. It needs the scope `operate`."""
        request = agent_pb2.DiffAgentVersionsRequest(
            agent_key=agent_key, from_version=from_version, to_version=to_version
        )
        reply: agent_pb2.DiffAgentVersionsResponse = await self._send(self._agents.DiffAgentVersions, request)
        return list(reply.changes)

    async def validate_agent(
        self, definition: str, agent_key: str | None = None, *, for_tenant: bool = False
    ) -> agent_pb2.ValidateAgentResponse:
        """Return everything that is wrong with a definition, with `for_tenant` as one of the tenant's own; nothing is
        stored. It needs the scope `publish`."""
        request = agent_pb2.ValidateAgentRequest(definition=definition, agent_key=agent_key, for_tenant=for_tenant)
        return await self._send(self._agents.ValidateAgent, request)

    async def agent_problems(self) -> list[agent_pb2.AgentProblem]:
        """Return the agent files that were refused, ordered by name, and stored agents that are not in force. It needs
        the scope `operate`."""
        request = agent_pb2.ListAgentProblemsRequest()
        reply: agent_pb2.ListAgentProblemsResponse = await self._send(self._agents.ListAgentProblems, request)
        return list(reply.problems)

    async def identity(self) -> agent_pb2.GetIdentityResponse:
        """Return who the server takes this client for, and what its credential is good for."""
        return await self._send(self._agents.GetIdentity, agent_pb2.GetIdentityRequest())

    def _attach(self, run_id: str, last_seq: int) -> Any:
        request = agent_pb2.AttachRequest(run_id=run_id, last_seq=last_seq)
        return self._agents.Attach(request, metadata=self._metadata)

    @asynccontextmanager
    async def _follow(self, call: Any, run_id: str = "") -> AsyncGenerator[RunStream]:
        async with AsyncExitStack() as calls:

            async def attach(run_id: str, last_seq: int) -> AsyncIterator[agent_pb2.AgentDelta]:
                return await calls.enter_async_context(reading(self._attach(run_id, last_seq)))

            deltas = await calls.enter_async_context(reading(call))
            yield RunStream(deltas, attach, self._reattach_s, run_id)
