"""Two orchestrators that reach each other and share one suite's memory."""

from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace

from headrace.client import Client
from services.orchestrator.server import orchestrator
from tests.support.local_client import open_client
from tests.support.orchestrator.suite import Suite

LEASE_S = 1.5


@dataclass
class Replica:
    """One of the orchestrators, with a client of it."""

    client: Client
    address: str
    _process: AsyncExitStack

    async def stop(self) -> None:
        """Stop like on SIGTERM."""
        await self._process.aclose()


@asynccontextmanager
async def replica(suite: Suite, name: str, *, drain_s: float = 0.3) -> AsyncGenerator[Replica]:
    address = f"unix:{suite.config.config_dir}/{name}.sock"
    server = replace(suite.config.server, listen=address, drain_s=drain_s)
    config = replace(suite.config, server=server, advertise=address, lease_s=LEASE_S)
    async with AsyncExitStack() as process, open_client(address, memory_address=suite.config.memory_address) as client:
        await process.enter_async_context(orchestrator(config))
        yield Replica(client, address, process)


@asynccontextmanager
async def two_replicas(suite: Suite, *, drain_s: float = 0.3) -> AsyncGenerator[tuple[Replica, Replica]]:
    """Start two replicas instead of the suite's own orchestrator."""
    await suite.stop()
    async with replica(suite, "a", drain_s=drain_s) as a, replica(suite, "b", drain_s=drain_s) as b:
        yield a, b
