"""A real orchestrator over sockets, with a real memory, and a scripted LlmService and ToolService."""

import asyncio
import json
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeAlias

from headrace.client import Client
from headrace.v1 import llm_pb2_grpc, tools_pb2_grpc
from services.memory.__main__ import build_audit_service, build_key_service, build_schedule_service, build_spend_service
from services.memory.__main__ import build_service as memory_served
from services.memory.config import Config as MemoryConfig
from services.memory.storage.engine import Engine
from services.memory.storage.files.disk import Disk
from services.memory.storage.files.engine import open_files
from services.memory.storage.postgres.connection.pool import Limits
from services.memory.storage.postgres.engine import open_postgres
from services.orchestrator.config import Config
from services.orchestrator.server import orchestrator
from services.runtime.auth.settings import AuthSettings
from services.runtime.process.config import ServerSettings
from services.runtime.rpc.channels import open_channel
from services.runtime.rpc.server import GrpcService, serving_grpc
from tests.support.issuing import key_settings
from tests.support.local_client import open_client
from tests.support.memory.engines import Files, Tables
from tests.support.memory.serving import CONNECTIONS_MAX, STATEMENT_TIMEOUT_S
from tests.support.orchestrator.events import as_json
from tests.support.orchestrator.scripted_llm import ScriptedLlm
from tests.support.orchestrator.scripted_tools import ScriptedTools
from tests.support.orchestrator.steps import Step
from tests.support.orchestrator.watched_memory import OnAppend, WatchedMemory, pass_on
from tests.support.order import Event, check_order

ANYWHERE = ServerSettings(listen="127.0.0.1:0", drain_s=0.3)
NO_DRAIN = ServerSettings(listen="127.0.0.1:0", drain_s=0.0)
SCHEDULE_LOOK_S = ERASURES_LOOK_S = 0.2
PARK_AFTER_S = 5.0
TEST_TIMEOUT_S = 600.0
"""Ends tests that hang; some start the orchestrator a dozen times, which is slow on a busy machine."""

MODEL = {"providerKey": "scripted", "model": "m"}
REACT = {"mode": "REACT", "modelConfig": MODEL, "toolConfig": {"backends": ["look", "slow"]}, "react": {}}
ONESHOT = {"mode": "ONESHOT", "modelConfig": MODEL, "plain": {}}


@dataclass
class Suite:
    """A running orchestrator and its peers."""

    client: Client
    memory: WatchedMemory
    llm: ScriptedLlm
    tools: ScriptedTools
    agents: Path
    stop: Callable[[], Awaitable[None]]
    """Stops the orchestrator like SIGTERM."""
    kept: Files | Tables
    """Where memory stores the chats."""
    config: Config = field(default_factory=Config)
    """The orchestrator's configuration; another orchestrator with it is the same owner."""
    address: str = ""
    chat_id: str = ""
    run_ids: list[str] = field(default_factory=list[str])

    async def ask(self, message: str = "hello", agent: str = "react", **fields: Any) -> list[Event]:
        """Run a query in the suite's chat, and check the order of its events; return them."""
        if self.chat_id:
            fields = {"chat_id": self.chat_id} | fields
        async with self.client.ask(message, agent_key=agent, **fields) as deltas:
            events = [as_json(delta) async for delta in deltas]
        check_order(events)
        self.chat_id = next(event["chatId"] for event in events if event["type"] == "run.start")
        self.run_ids.append(events[-1]["runId"])
        return events


Serve: TypeAlias = Callable[..., AbstractAsyncContextManager[Suite]]


@asynccontextmanager
async def open_store(kept: Files | Tables) -> AsyncGenerator[Engine]:
    if isinstance(kept, Tables):
        async with open_postgres(kept.url, Limits(CONNECTIONS_MAX, STATEMENT_TIMEOUT_S)) as engine:
            yield engine
    else:
        with closing(Disk(kept.folder)) as disk:
            async with open_files(disk) as engine:
                yield engine


def write_agent(folder: Path, key: str, agent: Mapping[str, Any]) -> None:
    (folder / "agents").mkdir(exist_ok=True)
    (folder / "agents" / f"{key}.json").write_text(json.dumps(agent))


@asynccontextmanager
async def serve_suite(
    folder: Path,
    *turns: list[Step],
    before_append: OnAppend = pass_on,
    runs_max: int = 100,
    park_after_s: float = PARK_AFTER_S,
    keys: Mapping[str, str] | None = None,
    agents_precedence: str = "files",
    default_agent: str = "",
    database_url: str = "",
    beside: Mapping[str, dict[str, Any]] = {},
    **changes: Any,
) -> AsyncGenerator[Suite]:
    """Start the services and yield a suite. `changes` are fields of the agent `react`; `beside` has further agents
    besides it and `oneshot`. `keys` are those of tests.support.issuing.keys_file; the suite's client has the first one.
    With a `database_url`, memory stores the chats there."""
    auth = key_settings(folder, **keys) if keys else AuthSettings()
    server = replace(ANYWHERE, auth=auth)
    agents = folder / "agents"
    for key, agent in {"react": REACT | changes, "oneshot": ONESHOT, **beside}.items():
        write_agent(folder, key, agent)
    llm = ScriptedLlm(*turns)  # pyright: ignore[reportAbstractUsage] - two RPCs are asked
    tools = ScriptedTools()  # pyright: ignore[reportAbstractUsage] - four RPCs are asked
    async with asyncio.timeout(TEST_TIMEOUT_S), AsyncExitStack() as stack:
        llm_served = GrpcService("headrace.v1.LlmService", llm, llm_pb2_grpc.add_LlmServiceServicer_to_server)
        gateway = await stack.enter_async_context(serving_grpc(server, [llm_served]))
        gateway_channel = await stack.enter_async_context(open_channel(gateway.addresses[0]))
        memory_config = MemoryConfig(data_dir=folder / "data")
        kept = Tables(database_url) if database_url else Files(memory_config.logs_dir)
        store = await stack.enter_async_context(open_store(kept))
        real = memory_served(store, memory_config, llm_pb2_grpc.LlmServiceStub(gateway_channel))
        watched = WatchedMemory(real.servicer)
        watched.before = before_append
        memory = await stack.enter_async_context(
            serving_grpc(
                replace(NO_DRAIN, auth=auth),
                [
                    *(replace(real, servicer=watched), build_schedule_service(store)),
                    *(build_spend_service(store), build_audit_service(store), build_key_service(store)),
                ],
            )
        )
        tools_served = GrpcService("headrace.v1.ToolService", tools, tools_pb2_grpc.add_ToolServiceServicer_to_server)
        tool_server = await stack.enter_async_context(serving_grpc(server, [tools_served]))
        config = Config(
            server=server,
            config_dir=folder,
            agents_dir=agents,
            memory_address=memory.addresses[0],
            llm_gateway_address=gateway.addresses[0],
            tools_address=tool_server.addresses[0],
            runs_max=runs_max,
            park_after_s=park_after_s,
            agents_precedence=agents_precedence,
            default_agent=default_agent,
            schedule_look_s=SCHEDULE_LOOK_S,
            erasures_look_s=ERASURES_LOOK_S,
            remote_allow="127.0.0.1",
        )
        service = await stack.enter_async_context(AsyncExitStack())
        running = await service.enter_async_context(orchestrator(config))
        client = await stack.enter_async_context(
            open_client(running.addresses[0], memory_address=memory.addresses[0], token=next(iter(keys or {}), ""))
        )
        yield Suite(client, watched, llm, tools, agents, service.aclose, kept, config, running.addresses[0])
