"""The tools service with MCP servers, as its callers see it."""

import asyncio
import json
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from headrace.streams import reading
from headrace.v1 import tools_pb2, tools_pb2_grpc
from services.runtime.process.config import ServerSettings
from services.runtime.rpc.channels import open_channel
from services.tools.catalogue.catalogue import Catalogue
from services.tools.config import Config
from services.tools.sandbox.tiers import Sandbox
from services.tools.server import tool_server
from tests.support.tools.processes import wait_for_no_processes
from tests.support.tools.suite import CHAT, RUN


class Suite:
    """The service with the servers of its mcp.json."""

    def __init__(self, stub: Any, folder: Path) -> None:
        self.stub = stub
        self.folder = folder

    async def tools(self) -> dict[str, tools_pb2.Tool]:
        """The tools of MCP servers."""
        listed = await self.stub.ListTools(tools_pb2.ListToolsRequest())
        return {tool.name: tool for tool in listed.tools if "__" in tool.name}

    async def until(self, name: str, *, usable: bool = True) -> None:
        """Wait until a tool is there and can be used, or the opposite."""
        while ((tool := (await self.tools()).get(name)) is not None and not tool.unavailable) != usable:
            await asyncio.sleep(0.02)

    async def call(
        self, tool: str, arguments: str = "{}", *, timeout_ms: int = 0, metadata: Any = ()
    ) -> list[tools_pb2.ToolDelta]:
        async with reading(self.stub.Execute(request(tool, arguments, timeout_ms), metadata=metadata)) as deltas:
            return [delta async for delta in deltas]

    async def result(self, tool: str, *, metadata: Any = (), timeout_ms: int = 0) -> tools_pb2.ToolOutcome:
        return (await self.call(tool, metadata=metadata, timeout_ms=timeout_ms))[-1].result


def request(tool: str, arguments: str = "{}", timeout_ms: int = 0) -> tools_pb2.ExecuteRequest:
    return tools_pb2.ExecuteRequest(
        run_id=RUN, tool_call_id="1", tool_name=tool, arguments=arguments, chat_id=CHAT, timeout_ms=timeout_ms
    )


def write(folder: Path, servers: Any) -> None:
    (folder / "mcp.json").write_text(json.dumps({"mcpServers": servers}), encoding="utf-8")


@asynccontextmanager
async def serving(
    folder: Path, servers: Any, env: Mapping[str, str] | None = None, **settings: Any
) -> AsyncGenerator[Suite]:
    """The service with these servers."""
    write(folder, servers)
    async with serving_folder(folder, env, **settings) as suite:
        yield suite


@asynccontextmanager
async def serving_folder(folder: Path, env: Mapping[str, str] | None = None, **settings: Any) -> AsyncGenerator[Suite]:
    """Run the service that the folder configures; no process may be left after it."""
    given: dict[str, Any] = {"config_dir": folder, "data_dir": folder} | settings
    config = Config(server=ServerSettings(listen="127.0.0.1:0", drain_s=0), **given)
    async with asyncio.timeout(300):
        async with (
            tool_server(config, Sandbox("process"), Catalogue(folder / "tools"), env=env) as running,
            open_channel(running.addresses[0]) as channel,
        ):
            yield Suite(tools_pb2_grpc.ToolServiceStub(channel), folder)
        await wait_for_no_processes()
