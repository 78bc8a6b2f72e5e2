"""Suites shared by tests that do not break them; tests that do start their own."""

from collections.abc import AsyncGenerator

import pytest
import pytest_asyncio

from services.simulator.script import parse_script
from services.simulator.server import simulator
from tests.support.suite import Running, Suite, running, up_simulated


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def shared_suite(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Suite]:
    folder = tmp_path_factory.mktemp("suite")
    async with simulator() as sim, running(folder / "config", folder / "data", sim) as suite:
        yield suite


@pytest_asyncio.fixture(loop_scope="session")
async def suite(shared_suite: Suite) -> Suite:
    """The shared suite; its simulator has no script and no recorded requests."""
    shared_suite.simulator.rules = parse_script([])
    shared_suite.simulator.requests.clear()
    return shared_suite


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def demo(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Running]:
    """What `make demo` and `make up` start, on other ports: simulated model, simulated web."""
    folders = ("--config-dir", "examples", "--data-dir", str(tmp_path_factory.mktemp("demo")))
    async with up_simulated(*folders) as suite:
        yield suite
