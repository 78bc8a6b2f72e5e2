"""Runs the Go gateway as a separate process in front of a running suite."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

GATEWAY = Path(__file__).parents[2] / "build" / "gateway"
START_TIMEOUT_S = 30.0


@asynccontextmanager
async def starting_gateway(peers: Mapping[str, str]) -> AsyncGenerator[tuple[int, str]]:
    """Yield its process id and URL; `peers` are the services' addresses by name."""
    own = {f"HEADRACE_GATEWAY_{name}_ADDRESS": address for name, address in peers.items()}
    own |= {"HEADRACE_GATEWAY_LISTEN": "127.0.0.1:0", "HEADRACE_AUTH": "api_key"}  # the services need no credential
    process = await asyncio.create_subprocess_exec(GATEWAY, env=os.environ | own, stderr=asyncio.subprocess.PIPE)
    lines: Any = process.stderr
    async with asyncio.timeout(START_TIMEOUT_S):
        while (line := json.loads(await lines.readline()))["event"] != "serving":
            pass
    dropping = asyncio.create_task(_drop(lines))
    try:
        yield process.pid, f"http://{line['addresses'][0]}"
    finally:
        process.terminate()
        await process.wait()
        await dropping


async def _drop(lines: asyncio.StreamReader) -> None:
    while await lines.readline():
        pass
