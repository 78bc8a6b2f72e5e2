"""Servers of the official SDKs that are restarted, disconnected or behind a proxy: only the interrupted call is lost,
and all tools are back within five seconds.
"""

import asyncio
import sys
from asyncio.subprocess import DEVNULL
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from headrace.cli.supervisor.ports import reserve_port
from tests.judges.environments import NODE, find_npm_environment, find_python_environment
from tests.judges.mcp.proxy import open_proxy
from tests.judges.mcp.tool_client import ToolClient, open_tool_client
from tests.support.programs import starting

HERE = Path(__file__).parent / "servers"
ON_ALL_SERVERS = pytest.mark.parametrize(
    "server", ["python 2", *(pytest.param(name, marks=pytest.mark.nightly) for name in ("python 1", "typescript"))]
)

BACK_S = 5.0
LIMIT_S = 3.0
"""How long the proxy lets a connection be silent on the client's side."""

TOOL = "s__say"


@pytest.fixture
def port() -> Generator[int]:
    """Reserve a port for a server."""
    with reserve_port("port", 0) as reserved:
        yield reserved


def make_command(server: str, port: int) -> list[str]:
    if server == "typescript":
        packages = find_npm_environment("mcp", HERE.parent / "package.json")
        return [str(NODE), str(HERE / "typescript_server.mjs"), str(packages), str(port)]
    # Ours has 2.x.
    older = server == "python 1"
    python = find_python_environment("mcp-python-1", HERE / "python_1.txt") if older else Path(sys.executable)
    return [str(python), str(HERE / "python_server.py"), str(port)]


@asynccontextmanager
async def run_server(server: str, port: int) -> AsyncGenerator[None]:
    """Run a server inside the block and kill it at the end."""
    command = await asyncio.to_thread(make_command, server, port)
    async with starting(*command, stderr=DEVNULL):
        async with asyncio.timeout(120):
            while True:
                try:
                    _, writer = await asyncio.open_connection("127.0.0.1", port)
                except OSError:
                    await asyncio.sleep(0.05)
                else:
                    writer.close()
                    break
        yield


@asynccontextmanager
async def open_client(folder: Path, url: str) -> AsyncGenerator[ToolClient]:
    async with asyncio.timeout(240), open_tool_client(folder, {"s": {"url": url}}) as client:
        await client.wait_for(TOOL, seconds=60)
        yield client


async def say(client: ToolClient, text: str, seconds: float = 0) -> str:
    """Call the tool and return its text, or the error."""
    return (await client.execute(TOOL, {"text": text, "seconds": seconds})).result


async def say_until_back(client: ToolClient, text: str) -> str:
    """Call until it succeeds, for at most the allowed outage; return the last outcome."""
    result = ""
    try:
        async with asyncio.timeout(BACK_S):
            while result != text:
                result = await say(client, text)
                await asyncio.sleep(0.1)
    except TimeoutError:
        pass
    return result


@ON_ALL_SERVERS
async def test_calls_succeed_soon_after_a_server_restart(server: str, port: int, tmp_path: Path) -> None:
    async with open_proxy(port) as proxy:
        async with run_server(server, port):
            opening = open_client(tmp_path, proxy.url)
            client = await opening.__aenter__()
            assert await say(client, "one") == "one"
        try:
            async with run_server(server, port):
                assert await say_until_back(client, "two") == "two"
        finally:
            await opening.__aexit__(None, None, None)


@ON_ALL_SERVERS
async def test_a_cut_connection_loses_only_its_own_call(server: str, port: int, tmp_path: Path) -> None:
    async with open_proxy(port) as proxy, run_server(server, port), open_client(tmp_path, proxy.url) as client:
        other = asyncio.create_task(say(client, "beside", 4))
        cut = asyncio.create_task(say(client, "cut me", 4))
        while not (proxy.carries(b"cut me") and proxy.carries(b"beside")):
            await asyncio.sleep(0.02)
        await asyncio.sleep(0.5)  # until the server has it, too
        proxy.cut(b"cut me")
        assert await say_until_back(client, "after") == "after"
        assert await other == "beside"
        assert await cut != ""


@ON_ALL_SERVERS
async def test_a_proxy_that_ends_responses_loses_no_call(server: str, port: int, tmp_path: Path) -> None:
    async with run_server(server, port), open_proxy(port, LIMIT_S) as proxy, open_client(tmp_path, proxy.url) as client:
        results: list[str] = []
        for number in range(12):
            results.append(await say(client, f"number {number}", 0.5))
            await asyncio.sleep(0.3)
    assert results == [f"number {number}" for number in range(12)]
