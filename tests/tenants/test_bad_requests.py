"""Whatever an RPC is sent, it answers, or refuses with a reason; and everything goes on.

`python -m trials fuzz` sends more.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Any

import grpc
import pytest
import pytest_asyncio
from google.protobuf.descriptor import MethodDescriptor

from headrace.errors import from_rpc_error
from headrace.v1 import agent_pb2
from services.llm_gateway.config import Config as LlmConfig
from services.llm_gateway.server import gateway
from services.runtime.auth.caller_credentials import build_caller_metadata
from services.runtime.auth.callers import ORCHESTRATOR
from services.runtime.auth.identity import acting_as
from services.runtime.process.config import ServerSettings
from services.runtime.rpc.channels import open_channel
from tests.support.contract import RPCS
from tests.support.tenants.bad_requests import BadRequests
from tests.support.tenants.suite import ADA, SLOW, TenantSuite, path, serving_tenants
from tests.support.tiers import check_first

pytestmark = pytest.mark.asyncio(loop_scope="module")

NAMES = ["plain", "scripted", "m", "city_datetime", "write_file", "letter", "user", "main", "uploads/notes.txt"]
"""Of an agent, a provider, a model, tools, a skill and so on."""

IN_ORDER = sorted(RPCS, key=lambda name: name.endswith("DeleteChat"))
"""What there is stays there until all others have been tried."""

AT_ONCE = 20
CALL_S = 150.0
"""An answer may take as long; a stream is left after its first message."""

PROVIDERS = """{"providers": [
    {"key": "scripted", "protocol": "openai", "baseUrl": "http://127.0.0.1:9/v1", "models": [{"name": "m"}]}
]}"""


@dataclass
class Ground:
    """Where requests go, and what is there."""

    suite: TenantSuite
    channels: dict[str, grpc.aio.Channel]

    @contextlib.asynccontextmanager
    async def ids(self) -> AsyncGenerator[list[str]]:
        """Of a chat with a run that has ended, and of one with a run that ends with the block. New ones for each RPC:
        what others have made of theirs takes ever longer to read."""
        ended, live = await self.suite.ask(ADA, "hello"), await self.suite.ask(ADA, SLOW)
        yield [*ended, *live]
        await self.suite.call(RPCS["AgentService.Cancel"], ADA, [agent_pb2.CancelRequest(run_id=live[1])])


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def ground(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Ground]:
    folder = tmp_path_factory.mktemp("bad")
    async with contextlib.AsyncExitStack() as stack:
        suite = await stack.enter_async_context(serving_tenants(folder))
        (folder / "providers.json").write_text(PROVIDERS)
        server = ServerSettings(listen="127.0.0.1:0", drain_s=0, auth=suite.settings)
        llm = await stack.enter_async_context(gateway(LlmConfig(server=server, config_dir=folder), {}))
        shown = build_caller_metadata(suite.settings, ORCHESTRATOR)
        real = await stack.enter_async_context(open_channel(llm.addresses[0], shown))
        yield Ground(suite, {**suite.trusted, "LlmService": real})


@pytest.mark.parametrize("name", IN_ORDER)
@pytest.mark.parametrize("share", check_first([0.2, 1.0]))
async def test_any_request_is_answered_or_refused_with_a_reason(
    name: str, share: float, ground: Ground, request: pytest.FixtureRequest
) -> None:
    rpc = RPCS[name]
    requests: int = request.config.getoption("--bad-requests")  # pyright: ignore[reportAssignmentType] - it has a default
    count = round(share * requests)
    gate, seen = asyncio.Semaphore(AT_ONCE), Counter[str]()

    async def one(messages: list[bytes]) -> None:
        async with gate, asyncio.timeout(CALL_S):
            seen[await outcome(ground.channels[rpc.containing_service.name], rpc, messages)] += 1

    async with ground.ids() as known:
        made = BadRequests(name, known, NAMES)
        with acting_as(ADA):
            async with asyncio.TaskGroup() as group:
                for _ in range(count):
                    group.create_task(one(made.of(rpc)))
    assert seen.total() == count
    assert not {code for code in seen if code.startswith(("UNKNOWN", "INTERNAL", "without a reason"))}, seen


async def test_and_everything_goes_on(ground: Ground) -> None:
    await ground.suite.ask(ADA, "still there?")


async def outcome(channel: grpc.aio.Channel, rpc: MethodDescriptor, messages: Sequence[bytes]) -> str:
    """What became of a call with these bytes."""
    try:
        if rpc.client_streaming:
            await channel.stream_unary(path(rpc))(_each(messages))
        elif rpc.server_streaming:
            call: Any = channel.unary_stream(path(rpc))(messages[0])
            try:
                async for _ in call:
                    break
            finally:
                call.cancel()
        else:
            await channel.unary_unary(path(rpc))(messages[0])
    except grpc.aio.AioRpcError as error:
        if (known := from_rpc_error(error)) is None:
            return f"without a reason: {error.code().name} {error.details()}"
        return known.reason
    return "OK"


async def _each(messages: Sequence[bytes]) -> AsyncIterator[bytes]:
    for message in messages:
        yield message
