"""The client of a server, over gRPC.

    async with Client() as headrace:
        async with headrace.ask("What is the weather in Paris?", agent_key="assistant") as run:
            async for text in run.text():
                print(text, end="")

For TLS, use Client("host:443", tls=Tls()). A run's stream also iterates the run's events, folds them, and reconnects
when it breaks (run_stream.py). `headrace.sync.client` has the same calls for programs without an event loop.

Calls raise a HeadraceError; if the server cannot be reached, it is ProviderUnavailable.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Iterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from types import TracebackType
from typing import Any

import grpc

from headrace.calls import Calls
from headrace.chat_pages import read_chat
from headrace.contract import RPCS, Rpc
from headrace.run_stream import ChatStream, RunStream
from headrace.streams import reading, rpc_errors
from headrace.tls import Tls
from headrace.v1 import agent_pb2, memory_pb2, operator_pb2, tools_pb2

REATTACH_S = 60.0
"""How long to try to reconnect a broken stream; longer than a replica takes to restart."""

UNARY_TIMEOUT_S = 30.0
"""Timeout of one answer; streams have none, because a run waits for people."""

UPLOAD_TIMEOUT_S = 600.0
"""Equal to the server's limit for an upload."""

UPLOAD_PIECE_BYTES = 256 * 1024
"""Size of one message; the server accepts up to 1 MiB."""

OPTIONS: list[tuple[str, int]] = [
    ("grpc.max_receive_message_length", 64 * 1024 * 1024),  # a chat's whole history is one message
    ("grpc.keepalive_time_ms", 30_000),  # detects a dead server while a model is silent
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.enable_http_proxy", 0),  # gRPC would send even loopback traffic through it
]


SERVERS = ("orchestrator", "memory", "tools")
"""Services of the suite that clients call, in the order of the addresses."""

_ATTACH = RPCS["/headrace.v1.AgentService/Attach"]
_EXPORT_FACTS = RPCS["/headrace.v1.MemoryService/ExportFacts"]
_GET_CHAT = RPCS["/headrace.v1.MemoryService/GetChat"]
_LIST_RUNS = RPCS["/headrace.v1.OperatorService/ListRuns"]
_SHARE_CHAT = RPCS["/headrace.v1.MemoryService/ShareChat"]
_UPLOAD = RPCS["/headrace.v1.ToolService/UploadFile"]


class Client(Calls):
    """Connections to one deployment, shareable between the tasks of a loop; open it with `async with`.

    Only calls about whole chats, facts, keys, schedules, webhooks and spending need `memory_address`; only
    `upload` needs `tools_address`. `token` is an API key or a JWT; without `tls` it is sent unencrypted. A
    broken stream of a run is reconnected for up to `reattach_s` seconds; 0 disables this. With `channel`, all
    calls use that channel, which the client does not close, and addresses and `tls` are ignored.
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
        token = token.strip()  # values from files often end with a newline
        if not (token.isascii() and token.isprintable()):
            raise ValueError("token: has a character that no credential has")
        self._addresses = (address, memory_address, tools_address)
        self._tls = tls
        self._reattach_s = reattach_s
        self._given_channel = channel
        self._channels: dict[str, grpc.aio.Channel] = {}
        self._rpcs: dict[str, Any] = {}
        """Callable that makes calls of an RPC, by RPC path."""
        self._metadata = (("authorization", f"Bearer {token}"),) if token else ()

    async def __aenter__(self) -> Client:
        """Connect; raise OSError if the files of `tls` cannot be used."""
        self._channels = await self._open_channels()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._given_channel is None:
            for channel in self._channels.values():
                await channel.close()

    async def _open_channels(self) -> dict[str, grpc.aio.Channel]:
        """Return the channels by service name."""
        if self._given_channel is not None:
            return dict.fromkeys(SERVERS, self._given_channel)
        places = zip(SERVERS, self._addresses, strict=True)
        if self._tls is None:
            return {name: grpc.aio.insecure_channel(address, options=OPTIONS) for name, address in places}
        credentials = await asyncio.to_thread(self._tls.credentials)
        return {name: grpc.aio.secure_channel(address, credentials, options=OPTIONS) for name, address in places}

    async def chat(self, chat_id: str) -> memory_pb2.GetChatResponse:
        """Return a chat, with the history events of all its pages."""
        return await read_chat(lambda request: self._send(_GET_CHAT, request), chat_id)

    async def share_chat(self, chat_id: str, *names: str, participants: Iterable[str] = ()) -> list[str]:
        """Set who may read a chat (`names`) and who may take part in it (`participants`); return all names.

        Names are tenant, user:NAME or role:NAME. Anybody not named loses access.
        """
        request = memory_pb2.ShareChatRequest(chat_id=chat_id, shared_with=names, participants=participants)
        return list((await self._send(_SHARE_CHAT, request)).shared_with)

    async def tenant_runs(
        self, wanted: operator_pb2.OperatorListRunsRequest | None = None
    ) -> operator_pb2.OperatorListRunsResponse:
        """Return a page of the runs of all users of the tenant, most recently started first."""
        return await self._send(_LIST_RUNS, wanted or operator_pb2.OperatorListRunsRequest())

    async def export_facts(self) -> AsyncGenerator[memory_pb2.Fact]:
        """Yield all facts of the user, oldest first, including ended facts and tombstones."""
        async for fact in self._send_all(_EXPORT_FACTS, memory_pb2.ExportFactsRequest()):
            yield fact

    async def upload(self, name: str, data: bytes, *, chat_id: str | None = None) -> tools_pb2.UploadFileResponse:
        """Upload a file to a chat; without `chat_id`, a new chat is created.

        Pass the reply to `ask`: its `chat_id`, and its `reference` in `references`.
        """

        def split() -> Iterator[tools_pb2.UploadFileRequest]:
            start = tools_pb2.UploadStart(name=name, chat_id=chat_id, size_bytes=len(data))
            yield tools_pb2.UploadFileRequest(start=start)
            for at in range(0, len(data), UPLOAD_PIECE_BYTES):
                yield tools_pb2.UploadFileRequest(data=data[at : at + UPLOAD_PIECE_BYTES])

        return await self._send(_UPLOAD, split())

    def _find_rpc(self, rpc: Rpc) -> Any:
        """Return the callable that makes calls of an RPC."""
        if (made := self._rpcs.get(rpc.path)) is None:
            kind = "stream" if rpc.descriptor.client_streaming else "unary"
            answer = "stream" if rpc.descriptor.server_streaming else "unary"
            made = self._rpcs[rpc.path] = getattr(self._channels[rpc.server], f"{kind}_{answer}")(
                rpc.path,
                request_serializer=rpc.request.SerializeToString,
                response_deserializer=rpc.response.FromString,
            )
        return made

    async def _send(self, rpc: Rpc, request: Any) -> Any:
        """Send a request and return the answer; raise a HeadraceError."""
        timeout_s = UPLOAD_TIMEOUT_S if rpc is _UPLOAD else (rpc.client and rpc.client.timeout_s) or UNARY_TIMEOUT_S
        with rpc_errors(is_client=True):
            return await self._find_rpc(rpc)(request, timeout=timeout_s, metadata=self._metadata)

    async def _send_all(self, rpc: Rpc, request: Any) -> AsyncGenerator[Any]:
        """Yield the items of all pages."""
        [items] = [field.name for field in rpc.descriptor.output_type.fields if field.is_repeated]
        while True:
            page = await self._send(rpc, request)
            for item in getattr(page, items):
                yield item
            if not page.next_page_token:
                return
            request.page_token = page.next_page_token

    def _open(self, rpc: Rpc, request: Any) -> AbstractAsyncContextManager[AsyncIterator[Any]]:
        return reading(self._find_rpc(rpc)(request, metadata=self._metadata), is_client=True)

    def _read(self, rpc: Rpc, request: Any) -> AbstractAsyncContextManager[Any]:
        """Open a stream for the block; streams of runs and chats reconnect when they break."""
        match request:
            case agent_pb2.QueryRequest() | agent_pb2.CompactChatRequest():
                return self._read_run(rpc, request, "", 0)
            case agent_pb2.AttachRequest():
                return self._read_run(rpc, request, request.run_id, request.last_seq)
            case agent_pb2.FollowRequest():
                return self._read_chat(rpc, request)
            case _:
                return self._read_items(rpc, request)

    @asynccontextmanager
    async def _read_items(self, rpc: Rpc, request: Any) -> AsyncGenerator[AsyncIterator[Any]]:
        name = rpc.client.returns if rpc.client else ""
        async with self._open(rpc, request) as replies:
            yield (getattr(reply, name) async for reply in replies) if name else replies

    @asynccontextmanager
    async def _read_run(self, rpc: Rpc, request: Any, run_id: str, last_seq: int) -> AsyncGenerator[RunStream]:
        async with AsyncExitStack() as calls:

            async def attach(run_id: str, last_seq: int) -> AsyncIterator[agent_pb2.AgentDelta]:
                request = agent_pb2.AttachRequest(run_id=run_id, last_seq=last_seq)
                return await calls.enter_async_context(self._open(_ATTACH, request))

            deltas = await calls.enter_async_context(self._open(rpc, request))
            yield RunStream(deltas, attach, self._reattach_s, run_id, last_seq, self._sleep)

    @asynccontextmanager
    async def _read_chat(self, rpc: Rpc, request: agent_pb2.FollowRequest) -> AsyncGenerator[ChatStream]:
        async with AsyncExitStack() as calls:

            async def follow(cursor: str) -> AsyncIterator[agent_pb2.FollowDelta]:
                again = agent_pb2.FollowRequest(chat_id=request.chat_id, cursor=cursor or None)
                return await calls.enter_async_context(self._open(rpc, again))

            cursor = request.cursor
            yield ChatStream(await follow(cursor), follow, self._reattach_s, cursor, self._sleep)

    async def _sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
