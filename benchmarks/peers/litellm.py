"""LiteLLM's proxy as a peer, in its own environment; it is never a dependency.

The environment is created on first use, in the user's cache. The proxy runs in its fastest configuration: one
process, no database, no callbacks, no keys, and only errors logged.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp

from benchmarks.peers.environment import Unavailable, install, read_version

REQUIREMENTS = Path(__file__).with_name("litellm.txt")
VERSION = read_version(REQUIREMENTS, "litellm[proxy]")

START_TIMEOUT_S = 60.0

ENVIRONMENT = {
    "LITELLM_LOG": "ERROR",
    "LITELLM_MODE": "PRODUCTION",
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",  # otherwise fetched at each start
    "NO_DOCS": "True",
}


async def installed() -> Path:
    """Return the path of the program, installing it on demand.

    Raises:
        Unavailable: It cannot be installed.
    """
    return (await install(REQUIREMENTS, VERSION)) / "litellm"


@asynccontextmanager
async def litellm(program: Path, folder: Path, base_url: str) -> AsyncGenerator[tuple[str, int]]:
    """Start the proxy in front of the provider at `base_url`; yield its URL and process id.

    Its configuration is written to `folder`.

    Raises:
        Unavailable: It does not start.
    """
    config = folder / "litellm.json"
    provider = {"model": "openai/*", "api_base": base_url, "api_key": "none"}
    config.write_text(
        json.dumps(
            {
                "model_list": [{"model_name": "*", "litellm_params": provider}],
                "general_settings": {
                    "disable_spend_logs": True,
                    # Otherwise the proxy would require a key, and checking it would take time.
                    "dangerously_permit_weak_or_unset_master_key": True,
                },
            }
        )
    )
    port = _free_port()
    process = await asyncio.create_subprocess_exec(
        *(str(program), "--config", str(config), "--host", "127.0.0.1", "--port", str(port)),
        *("--num_workers", "1", "--telemetry", "False"),
        env=os.environ | ENVIRONMENT,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        await _until_ready(f"http://127.0.0.1:{port}/health/liveliness")
        yield f"http://127.0.0.1:{port}/v1/chat/completions", process.pid
    finally:
        process.terminate()
        await process.wait()


async def _until_ready(url: str) -> None:
    try:
        async with asyncio.timeout(START_TIMEOUT_S), aiohttp.ClientSession() as http:
            while not await _is_ready(http, url):  # noqa: ASYNC110 - another process, which tells nobody
                await asyncio.sleep(0.2)
    except TimeoutError as error:
        raise Unavailable(f"not ready within {START_TIMEOUT_S:.0f} s") from error


async def _is_ready(http: aiohttp.ClientSession, url: str) -> bool:
    try:
        async with http.get(url) as response:
            return response.status == 200
    except aiohttp.ClientConnectionError:  # not listening yet
        return False


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
