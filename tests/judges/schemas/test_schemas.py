"""No schema of another program makes a request fail: as a tool of an MCP server, as a caller's function, and as the
format of an answer.
"""

import asyncio
import json
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import pytest_asyncio

from tests.judges.mcp.tool_client import open_tool_client
from tests.judges.schemas.schemas import load_schemas, make_parameters
from tests.support.suite import Running, up_simulated
from tests.support.timing import within

pytestmark = pytest.mark.asyncio(loop_scope="module")

SERVER = Path(__file__).with_name("listing_server.py")
TOOLS_OF_A_SERVER = 200
FUNCTIONS_OF_A_REQUEST = 32


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def suite(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Running]:
    folders = ("--config-dir", "examples", "--data-dir", str(tmp_path_factory.mktemp("data")))
    async with up_simulated(*folders, HEADRACE_DRAIN_S="0.2") as running:
        yield running


async def complete(http: aiohttp.ClientSession, suite: Running, **fields: Any) -> str:
    """Ask an agent through the OpenAI adapter; return the reason of a refusal, or "" when there is none."""
    messages = [{"role": "user", "content": "What time is it in Paris?"}]
    body = {"model": "writer", "messages": messages} | fields
    async with http.post(f"{suite.url}/v1/chat/completions", json=body) as response:
        return await response.text() if response.status == 400 else ""


def make_function(schema: Any, at: int) -> dict[str, Any]:
    return {"type": "function", "function": {"name": f"function_{at}", "parameters": make_parameters(schema)}}


async def test_tools_of_mcp_servers_are_offered(tmp_path: Path) -> None:
    schemas = load_schemas()
    servers: dict[str, Any] = {}
    places: dict[str, str] = {}
    for number, names in enumerate(_batch(schemas, TOOLS_OF_A_SERVER)):
        file = tmp_path / f"{number}.json"
        file.write_text(json.dumps([make_parameters(schemas[name]) for name in names]))
        servers[f"s{number}"] = {"command": "python", "args": ["-I", "-S", str(SERVER), str(file)]}
        places |= {f"s{number}__tool_{at}": name for at, name in enumerate(names)}
    async with within(120), open_tool_client(tmp_path / "service", servers) as client:
        await client.wait_for(*places, seconds=100)


async def test_no_schema_of_a_callers_function_fails_the_request(suite: Running) -> None:
    schemas = load_schemas()
    async with within(300), aiohttp.ClientSession() as http:
        for names in _batch(schemas, FUNCTIONS_OF_A_REQUEST):
            functions = [make_function(schemas[name], at) for at, name in enumerate(names)]
            assert await complete(http, suite, tools=functions) == ""


@pytest.mark.parametrize("each", [pytest.param(1, marks=pytest.mark.nightly), 6])
async def test_no_schema_of_an_output_format_fails_the_request(suite: Running, each: int) -> None:
    schemas = load_schemas()
    names = list(schemas)[::each]
    limit = asyncio.Semaphore(4)

    async def ask(http: aiohttp.ClientSession, name: str) -> str:
        form = {"name": "answer", "schema": make_parameters(schemas[name])}
        async with limit:
            return await complete(http, suite, response_format={"type": "json_schema", "json_schema": form})

    async with within(600), aiohttp.ClientSession() as http:
        problems = await asyncio.gather(*(ask(http, name) for name in names))
    assert {name: text for name, text in zip(names, problems, strict=True) if text} == {}


def _batch(names: Any, size: int) -> list[list[str]]:
    listed = list(names)
    return [listed[at : at + size] for at in range(0, len(listed), size)]
