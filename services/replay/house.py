"""An orchestrator in this process, with the cassette's definitions and peers that give recorded answers."""

from __future__ import annotations

import asyncio
import json
import tempfile
from collections.abc import AsyncGenerator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc

from headrace.cassette.lines import Cassette
from headrace.v1 import agent_pb2_grpc, gates_pb2_grpc
from services.orchestrator.config import LEASE_S_MAX, Config
from services.orchestrator.server import orchestrator
from services.runtime.auth.callers import FACADE
from services.runtime.auth.identity import ALL_SCOPES, DEFAULT, Identity, acting_as
from services.runtime.auth.settings import AuthSettings
from services.runtime.process.config import ServerSettings
from services.runtime.rpc.channels import build_caller_metadata, open_channel

AUTH = AuthSettings(internal_token="a replay reaches nobody but itself")
"""Token that the parts of the replay share, so that each call may be made for the recorded user."""

NEVER_MS = 3_600_000

ADDRESS = "local:orchestrator"


def serve(address: str) -> ServerSettings:
    return ServerSettings(listen=address, transport="local", drain_s=0.0, auth=AUTH)


def write_definitions(cassette: Cassette, folder: Path) -> None:
    agents = folder / "agents"
    agents.mkdir()
    for key, definition in cassette.agents.items():
        if key in cassette.own_agents:
            continue  # stored agents come from the store
        # Byte for byte the same: an agent's version is the hash of its file's content.
        (agents / f"{Path(key).name}.json").write_text(json.dumps(definition))
    modes = folder / "modes"
    modes.mkdir()
    for name, mode in cassette.modes.items():
        (modes / f"{Path(name).name}.py").write_bytes(mode.source.encode())
    for name, text in cassette.files.items():
        if name in ("approvals.yaml", "budgets.yaml", "tenant-agents.yaml"):
            (folder / name).write_text(text)


def find_identity(given: dict[str, Any]) -> Identity:
    """Return the recorded user, in the tenant of all replays."""
    return Identity(
        DEFAULT.tenant,
        given.get("user", DEFAULT.user),
        given.get("credential", ""),
        frozenset(given.get("roles", ())),
        frozenset(given.get("scopes", ALL_SCOPES)),
    )


@dataclass(frozen=True, slots=True)
class House:
    agents: Any
    gates: Any
    run_id: str
    _tasks: asyncio.TaskGroup

    def tell(self, method: str, request: Any, given: dict[str, Any]) -> None:
        """Send the run a recorded request of a person; the effect shows in the events."""
        if hasattr(request, "run_id"):
            request.run_id = self.run_id
        service, _, name = method.partition("/")
        stub = self.agents if service == "AgentService" else self.gates
        self._tasks.create_task(_ask(getattr(stub, name), request, find_identity(given)))


async def _ask(rpc: Callable[[Any], Any], request: Any, identity: Identity) -> None:
    with acting_as(identity):
        try:
            await rpc(request)
        except grpc.aio.AioRpcError:
            # A refusal was recorded as well, by the missing effect.
            return


@asynccontextmanager
async def opening_house(cassette: Cassette) -> AsyncGenerator[House]:
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="headrace-replay-")))
        write_definitions(cassette, folder)
        config = Config(
            server=serve(ADDRESS),
            config_dir=folder,
            refresh_interval_ms=NEVER_MS,
            lease_s=LEASE_S_MAX,
            schedule_look_s=NEVER_MS / 1000,
            erasures_look_s=NEVER_MS / 1000,
            llm_gateway_address="local:llm_gateway",
            memory_address="local:memory",
            tools_address="local:tools",
        )
        await stack.enter_async_context(orchestrator(config))
        channel = await stack.enter_async_context(open_channel(ADDRESS, build_caller_metadata(AUTH, FACADE)))
        tasks = await stack.enter_async_context(asyncio.TaskGroup())
        agents, gates = agent_pb2_grpc.AgentServiceStub(channel), gates_pb2_grpc.GateServiceStub(channel)
        yield House(agents, gates, cassette.run_id, tasks)
