from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping

import mcp
import mcp_types
import structlog

from services.runtime.formats.json_depth import JSON_DEPTH_MAX, measure_json_depth
from services.tools.mcp_client.settings import Http, Server
from services.tools.toolkit.tool import Effect, Execute, Tool

NAME_CHARS_MAX = 64
"""Longest name that model providers allow, of letters, digits, _ and -."""

HASH_CHARS = 6

DESCRIPTION_CHARS_MAX = 4_000
"""Limit of a description, which is part of every request to a model and is not written by the operator."""

SCHEMA_CHARS_MAX = 100_000
"""Limit of a schema, likewise."""

EMPTY_SCHEMA = {"type": "object"}

log = structlog.get_logger()


def map_tools(
    server: str,
    listed: Iterable[mcp.Tool],
    refused: Mapping[str, str],
    granted: Server,
    execute: Callable[[str, Effect], Execute],
) -> list[Tool]:
    """Maps tools; `execute` makes the function that calls one, by the server's name for it.

    Bad ones cannot be used, and say why; `refused` has the problems of those that broke the protocol, by name.
    """
    tools = [*listed, *(mcp.Tool(name=name, input_schema=EMPTY_SCHEMA) for name in refused)]
    mapped: list[Tool] = []
    for tool, name in zip(tools, _make_names(server, [tool.name for tool in tools]), strict=True):
        parameters = json.dumps(tool.input_schema, ensure_ascii=False)
        if problem := refused.get(tool.name) or _find_problem(tool, parameters):
            log.error("mcp tool refused", server=server, tool=name, problem=problem)
            parameters = json.dumps(EMPTY_SCHEMA)
        # The hints are believed, because the operator has chosen the server.
        hints = tool.annotations or mcp_types.ToolAnnotations()
        effect: Effect = "read" if hints.read_only_hint else "idempotent" if hints.idempotent_hint else "once"
        mapped.append(
            Tool(
                name=name,
                description=(tool.description or tool.title or "")[:DESCRIPTION_CHARS_MAX],
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
