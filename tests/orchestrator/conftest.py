"""A real orchestrator over sockets, with a real memory and a scripted LlmService and ToolService."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from headrace.v1 import llm_pb2_grpc, tools_pb2_grpc
from services.memory.__main__ import build_audit_service, build_schedule_service, build_spend_service
from services.memory.__main__ import build_service as memory_served
from services.memory.config import Config as MemoryConfig
from services.orchestrator.config import Config
from services.orchestrator.server import orchestrator
from services.runtime.auth.settings import AuthSettings
from services.runtime.rpc.channels import open_channel
from services.runtime.rpc.server import GrpcService, serving_grpc
from tests.support.clients.mcp_task_client import open_client
from tests.support.issuing import key_settings
from tests.support.memory.engines import Files, Tables
from tests.support.orchestrator import Serve, Suite
from tests.support.orchestrator.scripted_llm import ScriptedLlm
from tests.support.orchestrator.scripted_tools import ScriptedTools
from tests.support.orchestrator.steps import Step
from tests.support.orchestrator.suite import (
    ANYWHERE,
    ERASURES_LOOK_S,
    NO_DRAIN,
    ONESHOT,
    PARK_AFTER_S,
    REACT,
    SCHEDULE_LOOK_S,
    TEST_TIMEOUT_S,
    open_store,
)
from tests.support.orchestrator.watched_memory import OnAppend, WatchedMemory, pass_on


@pytest.fixture
def serve(tmp_path: Path) -> Serve:
    """`serve(turn, turn, …, react={…})`: an orchestrator whose model plays these turns; fields change the agents."""

    @asynccontextmanager
    async def start(
        *turns: list[Step],
        before_append: OnAppend = pass_on,
        runs_max: int = 100,
        park_after_s: float = PARK_AFTER_S,
        keys: Mapping[str, str] | None = None,
        agents_precedence: str = "files",
        database_url: str = "",
        **changes: Any,
    ) -> AsyncGenerator[Suite]:
        """`keys` are those of tests.runtime.auth.issuing.keys_file; the first is that of the suite's client. With a
        `database_url` memory keeps the chats there."""
        auth = key_settings(tmp_path, **keys) if keys else AuthSettings()
        server = replace(ANYWHERE, auth=auth)
        agents = tmp_path / "agents"
        agents.mkdir(exist_ok=True)
        for key, agent in {"react": REACT | changes, "oneshot": ONESHOT}.items():
            (agents / f"{key}.json").write_text(json.dumps(agent))
        llm = ScriptedLlm(*turns)  # pyright: ignore[reportAbstractUsage] - two RPCs are asked
        tools = ScriptedTools()  # pyright: ignore[reportAbstractUsage] - four RPCs are asked
        async with asyncio.timeout(TEST_TIMEOUT_S), AsyncExitStack() as stack:
            llm_served = GrpcService("headrace.v1.LlmService", llm, llm_pb2_grpc.add_LlmServiceServicer_to_server)
            gateway = await stack.enter_async_context(serving_grpc(server, [llm_served]))
            gateway_channel = await stack.enter_async_context(open_channel(gateway.addresses[0]))
            memory_config = MemoryConfig(data_dir=tmp_path / "data")
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
                        *(build_spend_service(store), build_audit_service(store)),
                    ],
                )
            )
            tools_served = GrpcService(
                "headrace.v1.ToolService", tools, tools_pb2_grpc.add_ToolServiceServicer_to_server
            )
            tool_server = await stack.enter_async_context(serving_grpc(server, [tools_served]))
            config = Config(
                server=server,
                config_dir=tmp_path,
                agents_dir=agents,
                memory_address=memory.addresses[0],
                llm_gateway_address=gateway.addresses[0],
                tools_address=tool_server.addresses[0],
                runs_max=runs_max,
                park_after_s=park_after_s,
                agents_precedence=agents_precedence,
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

    return start
