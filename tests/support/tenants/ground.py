"""The suite with a real llm_gateway next to the scripted one, for randomly made requests."""

import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
from google.protobuf.descriptor import MethodDescriptor

from headrace.errors import from_rpc_error
from headrace.v1 import agent_pb2
from services.llm_gateway.config import Config as LlmConfig
from services.llm_gateway.server import gateway
from services.runtime.auth.callers import ORCHESTRATOR
from services.runtime.process.config import ServerSettings
from services.runtime.rpc.channels import build_caller_metadata, open_channel
from tests.support.contract import RPCS
from tests.support.tenants.suite import ADA, SLOW, TenantSuite, path, serving_tenants

PROVIDERS = """{"providers": [
    {"key": "scripted", "protocol": "openai", "baseUrl": "http://127.0.0.1:9/v1", "models": [{"name": "m"}]}
]}"""


@dataclass
class Ground:
    """The suite and the channels that the requests use."""

    suite: TenantSuite
    channels: dict[str, grpc.aio.Channel]

    @contextlib.asynccontextmanager
    async def ids(self) -> AsyncGenerator[list[str]]:
        """Of a chat with a run that has ended, and of one with a run that ends with the block. New ones for each RPC:
        what others have made of theirs takes ever longer to read."""
        ended, live = await self.suite.ask(ADA, "hello"), await self.suite.ask(ADA, SLOW)
        yield [*ended, *live]
        await self.suite.call(RPCS["AgentService.Cancel"], ADA, [agent_pb2.CancelRequest(run_id=live[1])])


@contextlib.asynccontextmanager
async def preparing_ground(folder: Path) -> AsyncGenerator[Ground]:
    async with contextlib.AsyncExitStack() as stack:
        suite = await stack.enter_async_context(serving_tenants(folder))
        (folder / "providers.json").write_text(PROVIDERS)
        server = ServerSettings(listen="127.0.0.1:0", drain_s=0, auth=suite.settings)
        llm = await stack.enter_async_context(gateway(LlmConfig(server=server, config_dir=folder), {}))
        caller_metadata = build_caller_metadata(suite.settings, ORCHESTRATOR)
        real = await stack.enter_async_context(open_channel(llm.addresses[0], caller_metadata))
        yield Ground(suite, {**suite.trusted, "LlmService": real})


STREAM_S = 60.0
"""Timeout of a stream's first message, which a watch of what does not change never sends."""


async def outcome(channel: grpc.aio.Channel, rpc: MethodDescriptor, messages: Sequence[bytes]) -> str:
    """Make a call with these bytes; return \"OK\" or the reason of its error."""
    try:
        if rpc.client_streaming:
            await channel.stream_unary(path(rpc))(_each(messages))
        elif rpc.server_streaming:
            call: Any = channel.unary_stream(path(rpc))(messages[0], timeout=STREAM_S)
            try:
                async for _ in call:
                    break
            finally:
                call.cancel()
        else:
            await channel.unary_unary(path(rpc))(messages[0])
    except grpc.aio.AioRpcError as error:
        if rpc.name.startswith("Watch") and error.code() is grpc.StatusCode.DEADLINE_EXCEEDED:
            return "OK"  # there is nothing to tell
        if (known := from_rpc_error(error)) is None:
            return f"without a reason: {error.code().name} {error.details()}"
        return known.reason
    return "OK"


async def _each(messages: Sequence[bytes]) -> AsyncIterator[bytes]:
    for message in messages:
        yield message
