"""A peer that serves the whole contract, answers each RPC as a test says, and records its requests."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
from google.protobuf.descriptor import MethodDescriptor, ServiceDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from headrace.contract import SERVICES
from services.runtime.process.config import ServerSettings
from services.runtime.rpc.interceptors import Context
from services.runtime.rpc.server import GrpcService, serving_grpc


@dataclass
class Peer:
    """Every service of the contract."""

    replies: Sequence[Message | Exception] = ()
    """What every RPC answers: the first of them, or all of them if it streams."""

    heard: list[Any] = field(default_factory=list[Any])

    def served(self) -> list[GrpcService]:
        """As a server takes it."""
        return [GrpcService(service.full_name, service, self._add) for service in SERVICES.values()]

    def _add(self, service: ServiceDescriptor, server: grpc.aio.Server) -> None:
        handlers = {rpc.name: self._handler(rpc) for rpc in service.methods}
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service.full_name, handlers),))

    def _handler(self, rpc: MethodDescriptor) -> grpc.RpcMethodHandler[Any, Any]:
        kinds = GetMessageClass(rpc.input_type).FromString, GetMessageClass(rpc.output_type).SerializeToString
        handler: Any = (
            grpc.stream_unary_rpc_method_handler(self._answer, *kinds)  # pyright: ignore[reportArgumentType] - stubs know only sync
            if rpc.client_streaming
            else grpc.unary_stream_rpc_method_handler(self._stream, *kinds)  # pyright: ignore[reportArgumentType] - the same
            if rpc.server_streaming
            else grpc.unary_unary_rpc_method_handler(self._answer, *kinds)  # pyright: ignore[reportArgumentType] - the same
        )
        return handler

    async def _answer(self, request: Any, context: Context) -> Message:
        async for reply in self._stream(request, context):
            return reply
        raise AssertionError("no reply")

    async def _stream(self, request: Any, context: Context) -> AsyncGenerator[Message]:
        self.heard.append(request)
        for reply in self.replies:
            if isinstance(reply, Exception):
                raise reply
            yield reply


@asynccontextmanager
async def serving_peer(folder: Path, peer: Peer) -> AsyncGenerator[str]:
    """Serve `peer` inside the block and yield its address."""
    address = f"unix:{folder}/peer.sock"
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(serving_grpc(ServerSettings(listen=address, drain_s=0), peer.served()))
        yield address
