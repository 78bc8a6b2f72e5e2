"""The two facades, as processes or servers in front of the same peers."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import pytest

from services.facade import service
from services.facade.config import Config
from services.runtime.process.config import ProcessSettings
from services.runtime.process.metrics import serving_metrics
from services.runtime.rpc.channels import open_channel

ROOT = Path(__file__).parents[3]
GATEWAY = ROOT / "build" / "gateway"
PEERS: tuple[str, ...] = ("orchestrator", "memory", "tools")
START_TIMEOUT_S = 100.0


@dataclass(frozen=True)
class Timing:
    """The settings that tests scale down."""

    heartbeat_s: float = 15.0
    slow_reader_s: float = 60.0
    drain_s: float = 1.0


DEFAULTS = Timing()


class FrontUrl(str):
    """A facade's URL, with the URL of its metrics."""

    metrics: str = ""
    """URL of its metrics."""

    @classmethod
    def of(cls, url: str, metrics_address: str) -> FrontUrl:
        front = cls(url)
        front.metrics = f"http://{metrics_address}/metrics"
        return front


Front: TypeAlias = Callable[[Mapping[str, str], Timing], AbstractAsyncContextManager[FrontUrl]]
"""A facade in front of the peers at these addresses; gives its URL."""


@asynccontextmanager
async def embedded(addresses: Mapping[str, str], timing: Timing) -> AsyncGenerator[FrontUrl]:
    """services/facade, in this process."""
    async with AsyncExitStack() as stack:
        peers = {name: await stack.enter_async_context(open_channel(address)) for name, address in addresses.items()}
        config = Config(
            port=0,
            heartbeat_s=timing.heartbeat_s,
            slow_reader_s=timing.slow_reader_s,
            process=ProcessSettings(drain_s=timing.drain_s),
            a2a_listen="127.0.0.1:0",
        )
        metrics = await stack.enter_async_context(serving_metrics("127.0.0.1:0"))
        yield FrontUrl.of(f"http://{await stack.enter_async_context(service.serve(config, peers))}", metrics)


@asynccontextmanager
async def gateway(
    addresses: Mapping[str, str], timing: Timing, env: Mapping[str, str] | None = None, **settings: str
) -> AsyncGenerator[FrontUrl]:
    """Run deploy/gateway as a process; `env` is added to our own environment. Without the setting FACADE_ADDRESS it
    uses an embedded facade in this process."""
    if shutil.which("go") is None and not GATEWAY.exists():
        pytest.skip("Go is not installed: the gateway of deploy/gateway is NOT tested")
    if "FACADE_ADDRESS" not in settings:
        async with embedded(addresses, timing) as facade:
            facade_settings = settings | {"FACADE_ADDRESS": facade.removeprefix("http://")}
            async with gateway(addresses, timing, env, **facade_settings) as url:
                yield url
        return
    given = {f"{name}_ADDRESS": address for name, address in addresses.items()} | {
        "LISTEN": "127.0.0.1:0",
        "METRICS_LISTEN": "127.0.0.1:0",
        "HEARTBEAT_S": str(timing.heartbeat_s),
        "SLOW_READER_S": str(timing.slow_reader_s),
        "DRAIN_S": str(timing.drain_s),
    }
    environment = {f"HEADRACE_GATEWAY_{name.upper()}": value for name, value in (given | settings).items()}
    process = await asyncio.create_subprocess_exec(
        GATEWAY,
        env={**os.environ, "HEADRACE_AUTH": "api_key", **environment, **(env or {})},
        stderr=asyncio.subprocess.PIPE,
    )
    assert process.stderr is not None
    lines: list[bytes] = []
    try:
        async with asyncio.timeout(START_TIMEOUT_S):
            await process.stderr.readline()  # the settings in force
            line = json.loads(await process.stderr.readline())
        assert line["event"] == "serving", line
        reading = asyncio.create_task(_read(process.stderr, lines))
        scheme = "https" if line["tls"] else "http"
        yield FrontUrl.of(f"{scheme}://{line['addresses'][0]}", line["metrics"])
    finally:
        if process.returncode is None:
            process.terminate()
        async with asyncio.timeout(START_TIMEOUT_S):
            assert await process.wait() == 0
    await reading
    assert not [line for line in lines if b'"level":"error"' in line], lines


async def _read(stderr: asyncio.StreamReader, lines: list[bytes]) -> None:
    async for line in stderr:
        lines.append(line)


FRONTS: dict[str, Front] = {"embedded": embedded, "gateway": gateway}
