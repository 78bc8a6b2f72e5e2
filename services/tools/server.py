"""The tools service put together: workspaces, executor, watcher, server, and what is closed in which order."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager

from headrace.v1 import llm_pb2_grpc, tools_pb2, tools_pb2_grpc
from services.runtime.channels import connect
from services.runtime.server import Running, Served, serving
from services.runtime.watching import watch
from services.tools.catalogue import Catalogue
from services.tools.config import Config
from services.tools.executing import Executor
from services.tools.sandbox.selftest import Sandbox
from services.tools.service import ToolService
from services.tools.workspace import Workspaces

NAME = tools_pb2.DESCRIPTOR.services_by_name["ToolService"].full_name


@asynccontextmanager
async def tool_server(config: Config, sandbox: Sandbox, catalogue: Catalogue) -> AsyncGenerator[Running]:
    """A tools service that serves inside the block."""
    async with AsyncExitStack() as stack:
        # Not among the peers of readiness: most tools work without a model.
        gateway = await stack.enter_async_context(connect(config.llm_gateway_address))
        llm = llm_pb2_grpc.LlmServiceStub(gateway)
        workspaces = Workspaces(config.data_dir / "workspaces")
        group = await stack.enter_async_context(asyncio.TaskGroup())
        watcher = group.create_task(watch(config.config_dir / "tools", catalogue.reload))
        stack.callback(watcher.cancel)
        executor = Executor(catalogue, workspaces, sandbox, llm, config.commands_max)
        service = ToolService(catalogue, executor, sandbox)  # pyright: ignore[reportAbstractUsage] - later issues
        served = Served(NAME, service, tools_pb2_grpc.add_ToolServiceServicer_to_server)
        yield await stack.enter_async_context(serving(config.server, [served]))
