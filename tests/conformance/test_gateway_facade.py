"""One address for everything: what only the embedded facade serves is reached through deploy/gateway."""

import asyncio
import json
import os
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
from mcp.client.client import Client

from tests.support.facade.fronts import GATEWAY, PEERS, Timing, gateway
from tests.support.facade.scripted import Script, Suite, answering, opening, read_all_frames, suite, text
from tests.support.programs import run_to_end
from tests.support.timing import within

RUN_INPUT = {"threadId": "t", "runId": "r", "messages": [{"id": "u", "role": "user", "content": "hi"}]}


@asynccontextmanager
async def serving_one_address(
    folder: Path, script: Script, behind: str | None = None
) -> AsyncGenerator[tuple[str, Suite]]:
    """Run a gateway in front of a facade; yield the gateway's URL and the facade."""
    async with suite(folder, script) as facade:
        peers = dict.fromkeys(PEERS, f"unix:{folder}/peer.sock")
        address = facade.url.removeprefix("http://") if behind is None else behind
        async with gateway(peers, Timing(), FACADE_ADDRESS=address) as url:
            yield url, facade


async def test_events_are_forwarded_at_once_and_leaving_reaches_the_facade(tmp_path: Path) -> None:
    gate = asyncio.Event()
    steps = [*opening(), *answering("x")[3:4], text(5, "one"), gate, text(6, " two"), *answering("x")[-2:]]
    script = Script(query=steps, publish=["ag-ui"])
    async with serving_one_address(tmp_path, script) as (url, _), aiohttp.ClientSession(url) as http:
        async with within(50), http.post("/agui/helper", json=RUN_INPUT) as response:
            while b'"delta":"one"' not in await response.content.readline():
                pass
            gate.set()
            kinds = [json.loads(frame.data)["type"] for frame in await read_all_frames(response)]
        assert kinds[-1] == "RUN_FINISHED"
        assert len(response.headers.getall("X-Request-Id")) == 1
        script.query = [*steps[:5], asyncio.Event()]
        script.closed.clear()
        async with within(50), http.post("/agui/helper", json=RUN_INPUT) as response:
            await response.content.readline()
        async with within(50):
            await script.closed.wait()


async def test_the_gateway_serves_the_adapters_and_the_console_too(tmp_path: Path) -> None:
    script = Script(query=answering("x"), publish=["a2a", "mcp"])
    async with serving_one_address(tmp_path, script) as (url, _), aiohttp.ClientSession(url) as http:
        for path in ("/", "/console/main.js", "/v1/models", "/api/agents"):
            async with http.get(path) as response:
                assert response.status == 200, path
        async with http.get("/a2a/helper/.well-known/agent-card.json") as response:
            assert (await response.json())["supportedInterfaces"][0]["url"] == f"{url}/a2a/helper"
        for proto, host, prefix, base in (
            ("https", "agents.example", "", "https://agents.example"),
            (
                "HTTPS, http",
                "agents.example:8443 ,inner:80",
                "/team/agents/",
                "https://agents.example:8443/team/agents",
            ),
            ("wss", "a b", "//evil.example", url),
        ):
            proxied = {"X-Forwarded-Proto": proto, "X-Forwarded-Host": host, "X-Forwarded-Prefix": prefix}
            async with http.get("/a2a/helper/.well-known/agent-card.json", headers=proxied) as response:
                card = await response.json()
                assert card["supportedInterfaces"][0]["url"] == f"{base}/a2a/helper"
        async with within(50), Client(f"{url}/mcp") as client:
            assert (await client.call_tool("helper", {"message": "hi"})).structured_content["answer"] == "x"  # pyright: ignore
        for path in ("/v2/models", "/aguish", "/mcp/x"):
            async with http.get(path) as response:
                assert response.status == 404, path
        headers = {"Origin": "https://evil.example", "Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "cors"}
        async with http.post("/agui/helper", json=RUN_INPUT, headers=headers) as response:
            assert response.status == 403


async def test_without_the_facade_the_gateway_serves_its_own_routes(tmp_path: Path) -> None:
    async with serving_one_address(tmp_path, Script(), "127.0.0.1:9") as (url, _), aiohttp.ClientSession(url) as http:
        for path, status in (("/v1/models", 503), ("/readyz", 503), ("/healthz", 200), ("/api/agents", 200)):
            async with http.get(path) as response:
                assert response.status == status, path
                assert status == 200 or (await response.json())["error"]["code"] == "OVERLOADED"


ASK = {"message": "hi"}


async def run_failing_gateway(env: Mapping[str, str] | None = None, **settings: str) -> tuple[int, bytes]:
    """Run a gateway that does not start; return its exit status and log."""
    own = {f"HEADRACE_GATEWAY_{name}": value for name, value in ({"FACADE_ADDRESS": "unix:/nobody"} | settings).items()}
    environment = {**os.environ, "HEADRACE_AUTH": "api_key", **own, **(env or {})}
    code, _, log = await run_to_end(GATEWAY, env=environment)
    return code or 0, log


async def test_all_problems_with_the_settings_are_reported_together() -> None:
    shared = {"HEADRACE_TLS_CA": "x", "HEADRACE_INTERNAL_TOKEN": "short", "HEADRACE_AUTH": "none"}
    addresses = {"MEMORY_ADDRESS": "memory", "TOOLS_ADDRESS": "a:1,dns:///b:1", "FACADE_ADDRESS": ""}
    status, log = await run_failing_gateway(
        shared, HEARTBEAT_S="0", DRAIN_S="soon", TLS_KEY="x", LISTENS="y", **addresses
    )
    assert status == 1
    for name in ("HEARTBEAT_S", "DRAIN_S", "TLS_KEY", "LISTENS", *addresses):
        assert f"HEADRACE_GATEWAY_{name}".encode() in log
    for name in shared:
        assert name.encode() in log


async def test_unusable_certificates_end_the_gateway_and_its_secret_is_not_logged() -> None:
    token = "t" * 32
    absent = {"HEADRACE_TLS_CERT": "/nowhere.crt", "HEADRACE_TLS_KEY": "/nowhere.key", "HEADRACE_INTERNAL_TOKEN": token}
    status, log = await run_failing_gateway(absent)
    assert status == 1
    assert b"cannot use the certificates /nowhere.crt" in log
    assert b'"INTERNAL_TOKEN":"***"' in log
    assert token.encode() not in log


async def test_a_body_of_unknown_size_is_refused_at_4_mib(tmp_path: Path) -> None:
    async def chunks() -> AsyncGenerator[bytes]:
        for _ in range(6):
            yield b" " * (1 << 20)

    async with (
        suite(tmp_path, Script(query=answering()), front=gateway) as facade,
        facade.http.post("/api/query", data=chunks(), headers={"Content-Type": "application/json"}) as response,
    ):
        assert (response.status, (await response.json())["msg"]) == (413, "body: must not be larger than 4194304 bytes")
