"""Our tools service as the client of a conformance scenario: it connects to the server of mcp.json and calls each tool
once; the server's requests are answered.
"""

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx2

from headrace.errors import HeadraceError
from headrace.streams import reading, rpc_errors
from headrace.v1 import common_pb2, tools_pb2, tools_pb2_grpc
from services.runtime.process.config import ServerSettings
from services.runtime.rpc.channels import open_channel
from services.tools.catalogue.catalogue import Catalogue
from services.tools.config import Config
from services.tools.sandbox.tiers import Sandbox
from services.tools.server import tool_server
from tests.support.tools.audit_log import serving_audit
from tests.support.tools.calls import request

REDIRECT = "http://127.0.0.1:8080/console/authorized.html"
METADATA_URL = "https://conformance-test.local/client-metadata.json"
"""The client id metadata document that the scenarios of client ids expect."""

ROUNDS_MAX = 2
"""Answers of one call, after which the person gives up: a scenario asks for a scope once more, or never ends asking.
The service has no loop of its own, because each round is a person's."""

ECHO = "s__json_schema_echo"
"""A tool that wants to be told the schemas of the others, as they have come."""

POLL_S = 0.05
LISTED_S = 15.0
"""Time for a server's tools to be listed, on a machine that is busy, too; some scenarios' never are."""


class ToolClient:
    """The tools service with the servers of its mcp.json."""

    def __init__(self, stub: Any) -> None:
        self.stub = stub

    async def list_tools(self) -> dict[str, tools_pb2.Tool]:
        """Return the usable tools of MCP servers."""
        listed = await self.stub.ListTools(tools_pb2.ListToolsRequest())
        return {tool.name: tool for tool in listed.tools if "__" in tool.name and not tool.unavailable}

    async def wait_for(self, *names: str, seconds: float = 20) -> dict[str, tools_pb2.Tool]:
        """Wait until the named tools can be used; without names, any tool."""
        async with asyncio.timeout(seconds):
            while not (tools := await self.list_tools()) or not set(names) <= tools.keys():
                await asyncio.sleep(POLL_S)
        return tools

    async def execute(
        self, name: str, arguments: dict[str, Any], key: str = "", answers: Any = ()
    ) -> tools_pb2.ToolOutcome:
        call = request(name, arguments, budget=None, model=None, effect_key=key, answers=answers)
        async with reading(self.stub.Execute(call)) as deltas:
            return [delta async for delta in deltas][-1].result

    async def call(self, name: str, arguments: dict[str, Any]) -> tools_pb2.ToolOutcome:
        """Call a tool and accept its requests until it ends."""
        outcome = await self.execute(name, arguments, key=name)
        for _ in range(ROUNDS_MAX):
            if not outcome.asks:
                break
            answers = [await self._accept(need) for need in outcome.asks]
            outcome = await self.execute(name, arguments, key=name, answers=answers)
        return outcome

    async def _accept(self, need: common_pb2.InputNeed) -> tools_pb2.InputAnswer:
        if need.authorizes:
            await self._authorize(need.url)
            return tools_pb2.InputAnswer(name=need.name, action="accept")
        fields = json.loads(need.schema)["properties"]
        form = {name: field["default"] for name, field in fields.items() if "default" in field}
        return tools_pb2.InputAnswer(name=need.name, action="accept", content=json.dumps(form))

    async def _authorize(self, url: str) -> None:
        """Act as the user's browser: visit the address, and deliver the redirect's parameters."""
        async with httpx2.AsyncClient() as browser:
            sent_back = await browser.get(url)
        address = urlsplit(sent_back.headers["location"])
        query = {name: values[0] for name, values in parse_qs(address.query).items()}
        given = tools_pb2.CompleteAuthorizationRequest(
            state=query["state"], code=query["code"], issuer=query.get("iss")
        )
        with suppress(HeadraceError), rpc_errors():  # what is refused is told by the call
            await self.stub.CompleteAuthorization(given)


@asynccontextmanager
async def open_tool_client(folder: Path, servers: dict[str, Any]) -> AsyncGenerator[ToolClient]:
    """Run the tools service with these servers inside the block."""
    _write_servers(folder, servers)
    async with serving_audit() as audit:
        config = Config(
            server=ServerSettings(listen="127.0.0.1:0", drain_s=0),
            config_dir=folder,
            data_dir=folder,
            secrets_key="a key that nobody can guess, of 32 or more",
            memory_address=audit.address,
        )
        async with (
            tool_server(config, Sandbox("process"), Catalogue(folder / "tools"), env={}) as running,
            open_channel(running.addresses[0]) as channel,
        ):
            yield ToolClient(tools_pb2_grpc.ToolServiceStub(channel))


def _write_servers(folder: Path, servers: dict[str, Any]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "mcp.json").write_text(json.dumps({"mcpServers": servers}))


async def play_scenario(folder: Path, scenario: str, context: dict[str, Any], url: str) -> str:
    """Act as the client of a scenario, and return the outcome."""
    entry: dict[str, Any] = {"url": url, "elicitation": True}
    if scenario.startswith("auth/"):
        given = {"clientId": context.get("client_id"), "clientSecret": context.get("client_secret")}
        # Its authorization server has a port of its own on this machine.
        oauth: dict[str, Any] = {"redirectUrl": REDIRECT, "hosts": ["localhost", "127.0.0.1"]}
        oauth |= {name: value for name, value in given.items() if value}
        entry = {"url": url, "oauth": oauth | ({} if "clientId" in oauth else {"clientMetadataUrl": METADATA_URL})}
    async with open_tool_client(folder, {"s": entry}) as client:
        results: list[str] = []
        try:
            if (await client.wait_for(seconds=LISTED_S)).keys() == {"s__connect"}:
                results.append(f"connect: {(await client.call('s__connect', {})).result}")
            async with asyncio.timeout(LISTED_S):
                while {"s__connect"} == (tools := await client.wait_for()).keys():
                    await asyncio.sleep(POLL_S)
        except TimeoutError:
            return "\n".join([*results, "no tools"])
        for name, arguments in _plan_calls(tools, context):
            results.append(f"{name}: {(await client.call(name, arguments)).result}")
        return "\n".join(results)


def _plan_calls(tools: dict[str, tools_pb2.Tool], context: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    """Return the calls that a scenario needs, by default one of each tool."""
    if given := context.get("toolCalls"):
        return [(f"s__{call['name']}", call["arguments"]) for call in given]
    schemas = {name: json.loads(tool.parameters) for name, tool in tools.items() if name != "s__connect"}
    if ECHO in schemas:
        return [(ECHO, {"schema": schema}) for name, schema in schemas.items() if name != ECHO]
    return [(name, make_arguments(schema)) for name, schema in schemas.items()]


def make_arguments(schema: dict[str, Any]) -> dict[str, Any]:
    """Return arguments of each property's type."""
    values = {"string": "text", "number": 1, "integer": 1, "boolean": True, "array": [], "object": {}}
    return {
        name: values.get(property_schema.get("type")) for name, property_schema in schema.get("properties", {}).items()
    }
