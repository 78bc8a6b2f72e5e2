"""The ways from one provider to a reader: straight, through a peer, and through a suite of each transport."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.peers.environment import Unavailable
from benchmarks.peers.litellm import installed, litellm
from benchmarks.processes import simulating, started, suite

DIRECT, RELAY, LITELLM = "direct", "aiohttp relay", "LiteLLM"

CHAIN = ("llm_gateway", "orchestrator")
"""What a delta passes in a suite."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """One of them."""

    name: str
    url: str
    """As the reader wants it."""
    pids: dict[str, int] = field(default_factory=dict[str, int])
    """The processes that a delta passes, and the suite's memory service."""
    transport: str = ""
    """Of the suite, and so of its reader; empty: the way is plain HTTP."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ways:
    """All that run side by side."""

    simulator_url: str
    simulator_pid: int
    ways: Sequence[Way]
    """The direct one first."""
    missing: Sequence[str]
    """What could not be had, as sentences."""


@asynccontextmanager
async def running(folder: Path, transports: Sequence[str], models: list[str]) -> AsyncGenerator[Ways]:
    """Everything runs for the whole block; whoever is not asked is idle."""
    async with AsyncExitStack() as stack:
        base_url, simulator = await stack.enter_async_context(simulating(folder))
        upstream = f"{base_url}/chat/completions"
        relay, line = await stack.enter_async_context(started("-m", "benchmarks.peers.relay", upstream))
        ways = [
            Way(name=DIRECT, url=upstream),
            Way(name=RELAY, url=line.strip(), pids={"relay": relay}),
        ]
        missing: list[str] = []
        try:
            url, pid = await stack.enter_async_context(litellm(await installed(), folder, base_url))
            ways.append(Way(name=LITELLM, url=url, pids={"litellm": pid}))
        except Unavailable as error:
            missing.append(f"LiteLLM is missing: {error}")
        for transport in transports:
            (folder / transport).mkdir()
            starting = suite(folder / transport, base_url, models, transport=transport, form="--split")
            address, services = await stack.enter_async_context(starting)
            pids = {name: services[name] for name in (*CHAIN, "memory")}
            ways.append(Way(name=transport, url=address, pids=pids, transport=transport))
        yield Ways(simulator_url=base_url, simulator_pid=simulator, ways=ways, missing=missing)
