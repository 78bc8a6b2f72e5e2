"""A real tools server on a port of its own, with real processes, workspaces and definition files."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from headrace.streams import reading
from headrace.v1 import tools_pb2, tools_pb2_grpc
from services.runtime.process.config import ServerSettings
from services.runtime.rpc.channels import open_channel
from services.tools.catalogue.catalogue import Catalogue
from services.tools.config import Config
from services.tools.sandbox.tier import Sandbox
from services.tools.server import tool_server

RUN = "00000000-0000-4000-8000-000000000001"
CHAT = "00000000-0000-4000-8000-000000000002"


@dataclass(frozen=True, slots=True)
class Suite:
    """The server as its callers see it, and the folders behind it."""

    stub: Any
    catalogue: Catalogue
    definitions: Path
    workspace: Path

    def call(self, tool: str, arguments: str, timeout_ms: int = 0, effect_key: str = "") -> Any:
        return self.stub.Execute(
            tools_pb2.ExecuteRequest(
                run_id=RUN,
                tool_call_id="call_1",
                tool_name=tool,
                arguments=arguments,
                effect_key=effect_key,
                chat_id=CHAT,
                timeout_ms=timeout_ms,
            )
        )

    async def execute(
        self, tool: str, arguments: str = "", timeout_ms: int = 0, effect_key: str = ""
    ) -> tuple[list[tuple[str, str]], tools_pb2.ToolOutcome]:
        """The output pieces and the result, which must come once and last."""
        pieces: list[tuple[str, str]] = []
        outcomes: list[tools_pb2.ToolOutcome] = []
        async with reading(self.call(tool, arguments, timeout_ms, effect_key)) as deltas:
            async for delta in deltas:
                assert not outcomes
                if delta.HasField("output"):
                    pieces.append((delta.output.stream, delta.output.delta))
                elif delta.HasField("result"):
                    outcomes.append(delta.result)
        (outcome,) = outcomes
        return pieces, outcome


_others: set[int] = set()
"""Processes that this one had before the test: the suite of other tests in the session, for example."""


def _children() -> set[int]:
    return set(map(int, Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()))


@pytest.fixture(autouse=True)
def others() -> None:
    """Note whose processes are none of the test's."""
    _others.clear()
    _others.update(_children())


def processes() -> set[int]:
    """Those that the test has started and that have not ended."""
    return _children() - _others


async def nothing_running() -> None:
    """Wait until no process that the test has started is left."""
    async with asyncio.timeout(50):
        while processes():  # nothing tells when one ends
            await asyncio.sleep(0.005)


Serve = Callable[..., AbstractAsyncContextManager[Suite]]


@pytest.fixture
def serve(tmp_path: Path) -> Serve:
    """`async with serve() as suite`, with the sandbox that this machine should have, or another, and settings.

    `lasting`: processes may live as long as the server, not only as long as a call.
    """

    @asynccontextmanager
    async def start(sandbox: Sandbox | None = None, *, lasting: bool = False, **settings: Any) -> AsyncGenerator[Suite]:
        definitions = tmp_path / "tools"
        definitions.mkdir(exist_ok=True)
        catalogue = Catalogue(definitions)
        sandbox = sandbox or Sandbox("process")
        server = ServerSettings(listen="127.0.0.1:0", drain_s=0)
        config = Config(server=server, config_dir=tmp_path, data_dir=tmp_path, commands_max=2, **settings)
        async with (
            tool_server(config, sandbox, catalogue) as running,
            open_channel(running.addresses[0]) as channel,
        ):
            stub = tools_pb2_grpc.ToolServiceStub(channel)
            yield Suite(stub, catalogue, definitions, tmp_path / "workspaces" / CHAT)
            if not lasting:
                await nothing_running()
        await nothing_running()

    return start
