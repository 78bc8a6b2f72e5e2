"""One attack against a separate facade, during an honest stream: its cost, and its effect on the honest reader."""

import ssl
import sys
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path

import aiohttp
import orjson
import pytest

from headrace.sse import SseReader
from tests.support.facade.fronts import GATEWAY
from tests.support.issuing import INTERNAL
from trials.hostile.trial import RUN, SECRET, Cost, Victim, measure_attack, start_victim, victim

FACADES = ("embedded", "gateway")


@asynccontextmanager
async def facade(folder: Path, name: str, **settings: str) -> AsyncGenerator[Victim]:
    """Run a facade with credentials and `settings`, in front of a service with an endless Attach stream."""
    if name == "gateway" and not GATEWAY.exists():
        pytest.skip("build/gateway is missing: the gateway is NOT tested")
    async with victim(folder, "h2") as peer:
        prefix = "HEADRACE_GATEWAY_" if name == "gateway" else "HEADRACE_FACADE_"
        env = {f"{prefix}{each}_ADDRESS": f"127.0.0.1:{peer.port}" for each in ("ORCHESTRATOR", "MEMORY", "TOOLS")}
        env |= {"HEADRACE_AUTH": "api_key", "HEADRACE_INTERNAL_TOKEN": INTERNAL, **settings}
        if name == "gateway":
            command, env["HEADRACE_GATEWAY_LISTEN"] = [str(GATEWAY)], "127.0.0.1:0"
        else:
            command = [sys.executable, "-m", "services.facade"]
            env |= {"HEADRACE_FACADE_PORT": "0", "HEADRACE_AUTH_API_KEYS_FILE": str(folder / "api_keys.json")}
        async with start_victim(command, env) as one:
            yield one


@asynccontextmanager
async def following(one: Victim, ca: str = "") -> AsyncGenerator[AsyncIterator[int]]:
    """Yield the seqs of an honest stream, over TLS if `ca` names a file with the facade's CA."""
    url = f"{'https' if ca else 'http'}://127.0.0.1:{one.port}/api/attach?runId={RUN}"
    context = ssl.create_default_context(cafile=ca) if ca else True

    async def read(response: aiohttp.ClientResponse) -> AsyncGenerator[int]:
        reader = SseReader()
        async for chunk in response.content.iter_any():
            for frame in reader.feed(chunk):
                if frame.data:
                    yield orjson.loads(frame.data)["seq"]

    async with aiohttp.ClientSession(headers={"X-API-Key": SECRET}) as http, http.get(url, ssl=context) as response:
        assert response.status == 200
        async with aclosing(read(response)) as seqs:
            yield seqs


async def try_attack(one: Victim, name: str, seconds: float) -> Cost:
    """Attack for `seconds`, during an honest stream."""
    async with following(one) as seqs:
        return await measure_attack(one, seqs, "trials.hostile.http.attacker", name, seconds)
