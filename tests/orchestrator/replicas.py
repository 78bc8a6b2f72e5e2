"""Two orchestrators that reach each other, over one house's memory."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace

from headrace.client import Client
from services.orchestrator.server import orchestrator
from tests.orchestrator.conftest import House

LEASE_S = 1.5


@dataclass
class Replica:
    """One of them, and a way to it alone."""

    client: Client
    address: str
    _process: AsyncExitStack

    async def stop(self) -> None:
        """As SIGTERM does."""
        await self._process.aclose()


@asynccontextmanager
async def replica(it: House, name: str, *, drain_s: float = 0.3) -> AsyncGenerator[Replica]:
    address = f"unix:{it.config.config_dir}/{name}.sock"
    server = replace(it.config.server, listen=address, drain_s=drain_s)
    config = replace(it.config, server=server, advertise=address, lease_s=LEASE_S)
    async with (
        AsyncExitStack() as process,
        Client(address, memory_address=it.config.memory_address, reattach_s=0) as client,
    ):
        await process.enter_async_context(orchestrator(config))
        yield Replica(client, address, process)


@asynccontextmanager
async def two(it: House, *, drain_s: float = 0.3) -> AsyncGenerator[tuple[Replica, Replica]]:
    """Replicas in the place of the house's own one."""
    await it.stop()
    async with replica(it, "a", drain_s=drain_s) as a, replica(it, "b", drain_s=drain_s) as b:
        yield a, b
