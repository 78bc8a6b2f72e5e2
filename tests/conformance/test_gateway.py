"""What only deploy/gateway has: its own settings, and TLS."""

import asyncio
import os
import subprocess
from collections.abc import AsyncGenerator, Mapping
from pathlib import Path

from tests.support.facade.fronts import GATEWAY, gateway
from tests.support.facade.scripted import Script, answering, suite

ASK = {"message": "hi"}


async def _started(env: Mapping[str, str] | None = None, **settings: str) -> tuple[int, bytes]:
    """Exit status and log of a gateway that does not start."""
    own = {f"HEADRACE_GATEWAY_{name}": value for name, value in ({"FACADE_ADDRESS": "unix:/nobody"} | settings).items()}
    environment = {**os.environ, "HEADRACE_AUTH": "api_key", **own, **(env or {})}
    process = await asyncio.create_subprocess_exec(GATEWAY, env=environment, stderr=subprocess.PIPE)
    async with asyncio.timeout(100):
        _, log = await process.communicate()
    return process.returncode or 0, log


async def test_all_problems_with_the_settings_are_reported_together() -> None:
    shared = {"HEADRACE_TLS_CA": "x", "HEADRACE_INTERNAL_TOKEN": "short", "HEADRACE_AUTH": "none"}
    addresses = {"MEMORY_ADDRESS": "memory", "TOOLS_ADDRESS": "a:1,dns:///b:1", "FACADE_ADDRESS": ""}
    status, log = await _started(shared, HEARTBEAT_S="0", DRAIN_S="soon", TLS_KEY="x", LISTENS="y", **addresses)
    assert status == 1
    for name in ("HEARTBEAT_S", "DRAIN_S", "TLS_KEY", "LISTENS", *addresses):
        assert f"HEADRACE_GATEWAY_{name}".encode() in log
    for name in shared:
        assert name.encode() in log


async def test_what_it_cannot_have_ends_it_and_its_secret_is_in_no_line() -> None:
    token = "t" * 32
    absent = {"HEADRACE_TLS_CERT": "/nowhere.crt", "HEADRACE_TLS_KEY": "/nowhere.key", "HEADRACE_INTERNAL_TOKEN": token}
    status, log = await _started(absent)
    assert status == 1
    assert b"cannot use the certificates /nowhere.crt" in log
    assert b'"INTERNAL_TOKEN":"***"' in log
    assert token.encode() not in log


async def test_a_body_that_does_not_say_its_size_is_refused_at_4_mib(tmp_path: Path) -> None:
    async def chunks() -> AsyncGenerator[bytes]:
        for _ in range(6):
            yield b" " * (1 << 20)

    async with (
        suite(tmp_path, Script(query=answering()), front=gateway) as facade,
        facade.http.post("/api/query", data=chunks(), headers={"Content-Type": "application/json"}) as response,
    ):
        assert (response.status, (await response.json())["msg"]) == (413, "body: must not be larger than 4194304 bytes")
