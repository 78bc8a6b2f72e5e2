"""TLS handshakes with deploy/gateway: an address over its share starts none, unless its requests are admitted."""

import asyncio
import socket
import ssl
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest

from services.runtime.http2.limits import DEFAULTS
from tests.support.authority import Authority, Files
from trials.hostile.handshakes import attack
from trials.hostile.http.trial import facade, following
from trials.hostile.trial import RUN, SECRET, Victim

pytestmark = pytest.mark.nightly

TEST_TIMEOUT_S = 300.0

SHARE = DEFAULTS.unauthenticated
SAVED = SHARE.burst_s / SHARE.handshake_s
PER_S = SHARE.processor_share / SHARE.handshake_s
"""The gateway's share of handshakes is that of the services."""


@pytest.fixture
def files(tmp_path: Path) -> Files:
    (tmp_path / "authority").mkdir()
    return Authority(tmp_path / "authority").issue("gateway")


@asynccontextmanager
async def gateway(tmp_path: Path, files: Files, **more: str) -> AsyncGenerator[Victim]:
    settings = {"HEADRACE_GATEWAY_TLS_CERTIFICATE": files.cert, "HEADRACE_GATEWAY_TLS_KEY": files.key, **more}
    async with asyncio.timeout(TEST_TIMEOUT_S), facade(tmp_path, "gateway", **settings) as victim:
        yield victim


async def count_refused(metrics: str) -> float:
    """Return the number of refused handshakes from the gateway's metrics."""
    async with aiohttp.ClientSession() as http, http.get(f"http://{metrics}/metrics") as response:
        lines = (await response.text()).splitlines()
    (line,) = (line for line in lines if line.startswith("headrace_gateway_handshakes_refused_total "))
    return float(line.split()[1])


async def test_endless_handshakes_are_refused_beyond_the_addresss_share(tmp_path: Path, files: Files) -> None:
    loop = asyncio.get_running_loop()
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        metrics = f"127.0.0.1:{probe.getsockname()[1]}"
    settings = {"HEADRACE_GATEWAY_METRICS_LISTEN": metrics}
    async with gateway(tmp_path, files, **settings) as victim, following(victim, files.ca) as seqs:
        before, began_s = await anext(seqs), loop.time()
        attacking = asyncio.create_task(attack(victim.port))
        while not attacking.done():
            seq = await anext(seqs)
            assert seq == before + 1
            before = seq
        answered, refused = attacking.result()
        assert refused > 0
        assert answered <= SAVED + PER_S * (loop.time() - began_s) + 1
        assert await count_refused(metrics) >= refused


async def test_an_admitted_request_refunds_its_addresss_handshake(tmp_path: Path, files: Files) -> None:
    context = ssl.create_default_context(cafile=files.ca)
    loop = asyncio.get_running_loop()
    async with gateway(tmp_path, files) as victim:
        url, requests, began_s = f"https://127.0.0.1:{victim.port}/api/attach?runId={RUN}", 0, loop.time()
        while requests <= 2 * (SAVED + PER_S * (loop.time() - began_s)):
            async with (
                aiohttp.ClientSession(headers={"X-API-Key": SECRET}) as http,
                http.get(url, ssl=context) as response,
            ):
                assert response.status == 200
            requests += 1
