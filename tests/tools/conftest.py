"""A real tools server on a port of its own, with real processes, workspaces and definition files."""

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from headrace.v1 import tools_pb2_grpc
from services.runtime.process.config import ServerSettings
from services.runtime.rpc.channels import open_channel
from services.tools.catalogue.catalogue import Catalogue
from services.tools.config import Config
from services.tools.sandbox.tiers import Sandbox
from services.tools.server import tool_server
from tests.support.tools.processes import note_other_processes, wait_for_no_processes
from tests.support.tools.suite import CHAT, Serve, Suite

TEST_TIMEOUT_S = 600.0
"""Of what is done while a server runs."""


@pytest.fixture(autouse=True)
def others() -> None:
    note_other_processes()


@pytest.fixture
def serve(tmp_path: Path) -> Serve:
    """`async with serve() as suite` runs a server with this machine's sandbox, or a given one, and given settings.

    With `lasting`, processes may outlive a call, up to the end of the server. `env` has the values that files refer to.
    """

    @asynccontextmanager
    async def start(
        sandbox: Sandbox | None = None, *, lasting: bool = False, env: Mapping[str, str] | None = None, **settings: Any
    ) -> AsyncGenerator[Suite]:
        definitions = tmp_path / "tools"
        definitions.mkdir(exist_ok=True)
        catalogue = Catalogue(definitions)
        sandbox = sandbox or Sandbox("process")
        server = ServerSettings(listen="127.0.0.1:0", drain_s=0)
        config = Config(server=server, config_dir=tmp_path, data_dir=tmp_path, commands_max=2, **settings)
        async with (
            asyncio.timeout(TEST_TIMEOUT_S),
            tool_server(config, sandbox, catalogue, env=env) as running,
            open_channel(running.addresses[0]) as channel,
        ):
            stub = tools_pb2_grpc.ToolServiceStub(channel)
            yield Suite(stub, catalogue, definitions, tmp_path / "workspaces" / CHAT)
            if not lasting:
                await wait_for_no_processes()
        await wait_for_no_processes()

    return start
