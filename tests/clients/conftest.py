"""One suite for all clients: two agents that differ in whether their provider takes JSON schemas."""

from collections.abc import AsyncGenerator
from pathlib import Path

import pytest
import pytest_asyncio

from services.simulator.script import parse_script
from services.simulator.server import simulator
from tests.support.clients.programs import Served
from tests.support.clients.script import SCRIPT
from tests.support.suite import Running, up, up_simulated

CONFIG = Path(__file__).with_name("config")


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def shared_suite(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Served]:
    data_dir = tmp_path_factory.mktemp("clients")
    async with simulator() as provider:
        options = ("--config-dir", str(CONFIG), "--data-dir", str(data_dir))
        # Some clients read their answer from a call that they never answer; shutdown does not wait for its run.
        settings = {"HEADRACE_DRAIN_S": "0.2", "HEADRACE_FACADE_A2A_LISTEN": "127.0.0.1:0"}
        settings["HEADRACE_MEMORY_WEBHOOK_ALLOW"] = "127.0.0.1"
        async with up(*options, SIMULATOR_URL=provider.base_url, **settings) as suite:
            yield Served(suite, provider)


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def examples(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Running]:
    """The agents of examples/ with a simulated model, all of them published."""
    data_dir = str(tmp_path_factory.mktemp("examples"))
    options = ("--config-dir", "examples", "--data-dir", data_dir)
    async with up_simulated(*options, HEADRACE_FACADE_PUBLISH="a2a,ag-ui,mcp", HEADRACE_DRAIN_S="0.2") as suite:
        yield suite


@pytest_asyncio.fixture(loop_scope="session")
async def served(shared_suite: Served) -> Served:
    """The shared suite; its provider has the script of all clients."""
    shared_suite.provider.rules = parse_script(SCRIPT)
    shared_suite.provider.requests.clear()
    return shared_suite
