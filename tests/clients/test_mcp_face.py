"""The MCP face, tested with the official clients in each protocol version that they speak."""

import asyncio
import json
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
from mcp.client.client import Client
from mcp.shared.exceptions import MCPError

from tests.support.clients.mcp_task_client import answer
from tests.support.clients.programs import (
    PACKAGES,
    Served,
    check_row,
    find_version,
    get_environment,
    needs_node,
    run_program,
)
from tests.support.suite import Running
from tests.support.timing import within

pytestmark = pytest.mark.asyncio(loop_scope="session")


@pytest.mark.parametrize(("mode", "protocol_version"), [("auto", "2026-07-28"), ("legacy", "2025-11-25")])
async def test_the_python_client_calls_agents(examples: Running, mode: Any, protocol_version: str) -> None:
    progress_messages: list[str] = []

    async def note(progress: float, total: float | None, message: str | None) -> None:
        progress_messages.append(message or "")

    async with within(100), Client(f"{examples.url}/mcp", mode=mode, elicitation_callback=answer) as client:
        assert client.protocol_version == protocol_version
        assert {tool.name for tool in (await client.list_tools()).tools} >= {"assistant", "publisher"}
        weather = await client.call_tool("assistant", {"message": "The weather in Paris?"}, progress_callback=note)
        assert weather.structured_content is not None
        assert weather.structured_content["finishReason"] == "stop"
        next_arguments = {"message": "And in Rome?", "chatId": weather.structured_content["chatId"]}
        assert (await client.call_tool("assistant", next_arguments)).structured_content["chatId"] == next_arguments[
            "chatId"
        ]  # pyright: ignore
        published = await client.call_tool("publisher", {"message": "Publish a note"})
        assert "added to outputs/notes.md" in published.content[0].text  # pyright: ignore
        booked = await client.call_tool("booker", {"message": "Book a flight to Rome"})
        assert booked.structured_content is not None
        assert "choice yes" in booked.structured_content["answer"]
        (prompt, _) = (await client.list_prompts()).prompts
        assert (await client.get_prompt(prompt.name)).messages[0].content.text == prompt.title  # pyright: ignore
        resources = (await client.list_resources()).resources
        chat = await client.read_resource(resources[0].uri)
        assert json.loads(chat.contents[0].text)["chatId"] in resources[0].uri  # pyright: ignore
        with pytest.raises(MCPError, match="unknown tool"):
            await client.call_tool("nobody", {"message": "x"})
        with pytest.raises(MCPError, match="no such chat"):
            await client.read_resource("headrace://chats/11111111-1111-4111-8111-111111111111")
    assert progress_messages == ["calls mock_city_weather"]
    check_row("mcp (Python)", version("mcp"))


async def test_a_failed_run_is_a_failed_call_and_fifty_calls_run_at_once(served: Served) -> None:
    async with within(200), Client(f"{served.suite.url}/mcp") as client:
        failed = await client.call_tool("words", {"message": "Fail."})
        assert (failed.is_error, "PROVIDER_AUTHENTICATION" in failed.content[0].text) == (True, True)  # pyright: ignore
        table = {"name": "mills.csv", "mimeType": "text/csv", "text": "mill,year"}
        read = await client.call_tool("words", {"message": "Count.", "files": [table]})
        assert read.structured_content is not None
        uri = f"headrace://chats/{read.structured_content['chatId']}/files/uploads/mills.csv"
        assert (await client.read_resource(uri)).contents[0].text == "mill,year"  # pyright: ignore
        calls = [client.call_tool("words", {"message": "Count."}) for _ in range(50)]
        answers = {(await call).structured_content["answer"] for call in asyncio.as_completed(calls)}  # pyright: ignore
        assert answers == {"one two three"}
        assert [tool.name for tool in (await client.list_tools()).tools] == ["tools", "words"]


@needs_node
@pytest.mark.parametrize(("generation", "package"), [("1", "sdk"), ("2", "client")])
async def test_the_typescript_clients_call_agents(examples: Running, generation: str, package: str) -> None:
    folder = get_environment("node")
    links = ["--preserve-symlinks", "--preserve-symlinks-main"]
    program = ["node", *links, folder / "programs" / "mcp_sdk.mjs", examples.url, generation]
    assert json.loads((await run_program(program)).splitlines()[-1]) == {
        "version": {"1": None, "2": "2026-07-28"}[generation],
        "tools": True,
        "weather": "stop",
        "published": "publish_note says: added to outputs/notes.md\n",
        "booked": "confirm_dialog says: choice yes",
        "asked": [["decision", "note"], ["choice"]],
        "progress": True,
        "prompt": "What is the weather in Paris today?",
        "chat": True,
        "refused": -32602,
    }
    name = f"@modelcontextprotocol/{package}"
    check_row(name, find_version(PACKAGES, f'"{name}": "'))


@needs_node
async def test_the_inspector_lists_and_calls_agents(examples: Running) -> None:
    inspector: Path = get_environment("node") / "node_modules" / ".bin" / "mcp-inspector"
    start = [inspector, "--cli", f"{examples.url}/mcp", "--transport", "http", "--method"]
    listed = json.loads(await run_program([*start, "tools/list"]))
    assert "assistant" in [tool["name"] for tool in listed["tools"]]
    called = [*start, "tools/call", "--tool-name", "assistant", "--tool-arg", "message=What time is it in Paris?"]
    assert json.loads(await run_program(called))["structuredContent"]["finishReason"] == "stop"
    check_row("MCP Inspector", find_version(PACKAGES, '"@modelcontextprotocol/inspector": "'))
