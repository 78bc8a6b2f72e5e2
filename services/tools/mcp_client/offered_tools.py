"""The tools of a server offered to models: those that it lists, two for its resources, one to authorize it."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import re
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterable, Mapping
from typing import Any, TypeAlias

import mcp
import mcp_types as types
import structlog

from headrace.v1 import tools_pb2
from services.runtime.formats.json_form import JSON_DEPTH_MAX, measure_json_depth
from services.tools.mcp_client.sdk_errors import RequestNotTaken
from services.tools.mcp_client.session import McpSession
from services.tools.mcp_client.settings import Http, Server
from services.tools.mcp_client.tool_calls import SessionSource, authorizing, execute_request
from services.tools.toolkit.tool import Effect, Execute, Tool, ToolContext, describe_parameters, make_result

log = structlog.get_logger()

NAME_CHARS_MAX = 64
"""Longest name that model providers allow, of letters, digits, _ and -."""

HASH_CHARS = 6

DESCRIPTION_CHARS_MAX = 4_000
"""Maximum length of a description, which is part of every request to a model and is not written by the operator."""

SCHEMA_CHARS_MAX = 100_000
"""Maximum length of a schema, for the same reason."""

EMPTY_SCHEMA = {"type": "object"}

Work: TypeAlias = Callable[[McpSession, dict[str, Any]], Coroutine[Any, Any, types.CallToolResult]]

LISTED_MAX = 200
"""Maximum entries of a page shown to the model."""

TEXT_CHARS_MAX = 500
"""Longest description of an entry."""


def map_tools(
    server: str,
    listed: Iterable[mcp.Tool],
    refused: Mapping[str, str],
    granted: Server,
    execute: Callable[[str, Effect], Execute],
) -> list[Tool]:
    """Map tools; `execute` creates the function that calls one, given the server's name for it.

    Invalid tools are unavailable and state why; `refused` has the problems of those that violated the protocol, by
    name.
    """
    tools = [*listed]
    names = {tool.name for tool in tools}
    tools += [mcp.Tool(name=name, input_schema=EMPTY_SCHEMA) for name in refused if name not in names]
    mapped: list[Tool] = []
    for tool, name in zip(tools, _make_names(server, [tool.name for tool in tools]), strict=True):
        parameters = json.dumps(tool.input_schema, ensure_ascii=False)
        if problem := refused.get(tool.name) or _find_problem(tool, parameters):
            log.error("mcp tool refused", server=server, tool=name, problem=problem)
            parameters = json.dumps(EMPTY_SCHEMA)
        description = tool.description or tool.title or ""
        if len(description) > DESCRIPTION_CHARS_MAX:
            note = f"\n[… cut here: {len(description)} characters in all …]"
            description = description[:DESCRIPTION_CHARS_MAX] + note
        # The hints are believed, because the operator has chosen the server.
        hints = tool.annotations or types.ToolAnnotations()
        effect: Effect = "read" if hints.read_only_hint else "idempotent" if hints.idempotent_hint else "once"
        mapped.append(
            Tool(
                name=name,
                description=description,
                parameters=parameters,
                effect=effect,
                execute=execute(tool.name, effect),
                needs=frozenset({"model"}) if granted.sampling is not None else frozenset(),
                may_ask=granted.elicitation or (isinstance(granted, Http) and granted.oauth is not None),
                tier="enabled",
                begins_itself=True,
                category="mcp",
                server=server,
                unavailable=problem and f"its MCP server {server!r} describes it wrongly: {problem}",
            )
        )
    return mapped


def _make_names(server: str, server_names: list[str]) -> list[str]:
    # A name that is too long, or shared by two, ends with a hash of the server's name for it.
    plain = [re.sub(r"[^A-Za-z0-9_-]", "_", f"{server}__{name}") for name in server_names]
    count = Counter(name.casefold() for name in plain)
    names: list[str] = []
    for name, server_name in zip(plain, server_names, strict=True):
        if len(name) > NAME_CHARS_MAX or count[name.casefold()] > 1:
            digest = hashlib.sha256(server_name.encode()).hexdigest()[:HASH_CHARS]
            name = f"{name[: NAME_CHARS_MAX - HASH_CHARS - 1]}_{digest}"
        names.append(name)
    return names


def _find_problem(tool: mcp.Tool, parameters: str) -> str:
    if tool.input_schema.get("type") != "object":
        return 'inputSchema: {"type": "object", …} is expected'
    if len(parameters) > SCHEMA_CHARS_MAX:
        return f"inputSchema: longer than {SCHEMA_CHARS_MAX:,} characters"
    if measure_json_depth(tool.input_schema) > JSON_DEPTH_MAX:
        return f"inputSchema: nested too deeply, more than {JSON_DEPTH_MAX} levels"
    return ""


def make_resource_tools(server: SessionSource) -> list[Tool]:
    """Create two tools with which a model finds and reads a server's resources."""
    cursor = {"type": "string", "description": "nextCursor of the page before; left out: the first"}
    uri = {"type": "string", "minLength": 1, "maxLength": 4096}
    listing = f"List what {server.name} has to read: resources, and templates of their addresses."
    reading = (
        f"Read a resource of {server.name}, by an address that a list, a template or a result of its tools names. "
        "What is no text is kept as a file."
    )
    return [
        _make_resource_tool(server, "list_resources", listing, describe_parameters({"cursor": cursor}), _list),
        _make_resource_tool(server, "read_resource", reading, describe_parameters({"uri": uri}, "uri"), _read),
    ]


def _make_resource_tool(server: SessionSource, name: str, description: str, parameters: str, work: Work) -> Tool:

    def execute(context: ToolContext) -> AsyncGenerator[tools_pb2.ToolDelta]:
        return execute_request(server, context, lambda session, _: work(session, context.arguments))

    return Tool(
        name=f"{server.name}__{name}",
        description=description,
        parameters=parameters,
        effect="read",
        execute=authorizing(server, execute),
        tier="enabled",
        begins_itself=True,
        may_ask=server.authorizer is not None,
        category="mcp",
        server=server.name,
    )


async def _list(session: McpSession, arguments: dict[str, Any]) -> types.CallToolResult:
    cursor = arguments.get("cursor")
    page = await session.client.list_resources(cursor=cursor)
    listed: dict[str, Any] = {"resources": [_describe(one, str(one.uri)) for one in page.resources[:LISTED_MAX]]}
    if page.next_cursor:
        listed["nextCursor"] = page.next_cursor
    if not cursor:
        templates = (await session.client.list_resource_templates()).resource_templates
        listed["templates"] = [_describe(one, one.uri_template) for one in templates[:LISTED_MAX]]
    return types.CallToolResult(content=[types.TextContent(text=json.dumps(listed, ensure_ascii=False))])


def _describe(one: types.Resource | types.ResourceTemplate, uri: str) -> dict[str, str]:
    facts = {"uri": uri, "name": one.title or one.name, "mimeType": one.mime_type or ""}
    facts["description"] = (one.description or "")[:TEXT_CHARS_MAX]
    return {name: fact for name, fact in facts.items() if fact}


async def _read(session: McpSession, arguments: dict[str, Any]) -> types.CallToolResult:
    found = await session.client.read_resource(arguments["uri"])
    return types.CallToolResult(content=[types.EmbeddedResource(resource=content) for content in found.contents])


def make_connect_tool(server: SessionSource) -> Tool:
    """Create the tool with which users connect to a server that lists its tools only after authorization."""

    async def check_list(context: ToolContext) -> None:
        """List the user's tools: a server that moved to another authorization server refuses only that."""
        async with server.borrow_session(await server.find_authorization(context)) as session:
            await session.ask(session.client.list_tools())

    async def execute(context: ToolContext) -> AsyncGenerator[tools_pb2.ToolDelta]:
        await context.begin()
        try:
            await check_list(context)
        except RequestNotTaken:
            await check_list(context)
        yield make_result(f"{server.name} is connected; its tools are there from the next run on")

    return Tool(
        name=f"{server.name}__connect",
        description=f"Have the user authorize the use of {server.name}, which shows its tools after that alone.",
        parameters=describe_parameters({}),
        effect="idempotent",
        execute=authorizing(server, execute),
        tier="enabled",
        begins_itself=True,
        may_ask=True,
        category="mcp",
        server=server.name,
        is_per_user=True,
    )


def make_unlisted_tool(server: SessionSource, name: str) -> Tool:
    """Create the tool `name` for a user who does not see it now, but may have when the run began; it asks for
    authorization."""

    async def execute(context: ToolContext) -> AsyncGenerator[tools_pb2.ToolDelta]:
        async with server.borrow_session(await server.find_authorization(context)):
            yield make_result(f"MCP server {server.name!r} does not list this tool now", ok=False)

    return dataclasses.replace(
        make_connect_tool(server),
        name=name,
        parameters=json.dumps({"type": "object"}),
        execute=authorizing(server, execute),
    )
