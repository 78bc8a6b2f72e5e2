"""Two tools by which a model finds and reads what a server has besides its tools."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import aclosing
from typing import Any, TypeAlias

import mcp_types as types

from headrace.v1 import tools_pb2
from services.tools.mcp_client.asking.exchange import Exchange
from services.tools.mcp_client.session import McpSession
from services.tools.mcp_client.tool_calls import SessionSource, authorizing, execute_request
from services.tools.toolkit.context import ToolContext
from services.tools.toolkit.tool import Execute, Tool

Work: TypeAlias = Callable[[McpSession, dict[str, Any]], Coroutine[Any, Any, types.CallToolResult]]

LISTED_MAX = 200
"""Entries of a page that are told."""

TEXT_CHARS_MAX = 500
"""Of a description."""

LIST_PARAMETERS = {
    "type": "object",
    "properties": {"cursor": {"type": "string", "description": "nextCursor of the page before; left out: the first"}},
    "additionalProperties": False,
}
READ_PARAMETERS = {
    "type": "object",
    "properties": {"uri": {"type": "string", "minLength": 1, "maxLength": 4096}},
    "required": ["uri"],
    "additionalProperties": False,
}


def make_resource_tools(server: SessionSource) -> list[Tool]:
    return [
        _make_tool(
            server,
            "list_resources",
            f"List what {server.name} has to read: resources, and templates of their addresses.",
            LIST_PARAMETERS,
            _list,
        ),
        _make_tool(
            server,
            "read_resource",
            f"Read a resource of {server.name}, by an address that a list, a template or a result of its tools names. "
            "What is no text is kept as a file.",
            READ_PARAMETERS,
            _read,
        ),
    ]


def _make_tool(server: SessionSource, name: str, description: str, parameters: dict[str, Any], work: Work) -> Tool:
    return Tool(
        name=f"{server.name}__{name}",
        description=description,
        parameters=json.dumps(parameters),
        effect="read",
        execute=_make_execute(server, work),
        tier="enabled",
        begins_itself=True,
        may_ask=server.authorizer is not None,
        category="mcp",
        server=server.name,
    )


def _make_execute(server: SessionSource, work: Work) -> Execute:

    async def execute(context: ToolContext) -> AsyncGenerator[tools_pb2.ToolDelta]:
        def send(session: McpSession, exchange: Exchange) -> Coroutine[Any, Any, types.CallToolResult]:
            return work(session, context.arguments)

        async with aclosing(execute_request(server, context, send)) as deltas:
            async for delta in deltas:
                yield delta

    return authorizing(server, execute)


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
