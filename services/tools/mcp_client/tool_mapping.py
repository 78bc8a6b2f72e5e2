"""A server's tools as tools of ours: their names, effects and schemas."""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from collections.abc import Callable, Iterable

import mcp
import structlog

from services.tools.toolkit.arguments import compile_schema
from services.tools.toolkit.tool import Effect, Execute, Tool

NAME_CHARS_MAX = 64
"""What model providers accept, as letters, digits, _ and -."""

HASH_CHARS = 6

DESCRIPTION_CHARS_MAX = 4_000
"""It is part of every request to a model, and its author is not the operator."""

log = structlog.get_logger()


def offered(server: str, listed: Iterable[mcp.Tool], execute: Callable[[str], Execute]) -> list[Tool]:
    """The tools that can be offered; `execute` makes what calls one, by the server's name for it."""
    tools = list(listed)
    found: list[Tool] = []
    for tool, name in zip(tools, _names(server, [tool.name for tool in tools]), strict=True):
        parameters = json.dumps(tool.input_schema, ensure_ascii=False)
        if problem := _problem(tool, parameters):
            log.error("mcp tool refused", server=server, tool=name, problem=problem)
            continue
        found.append(
            Tool(
                name=name,
                description=(tool.description or tool.title or "")[:DESCRIPTION_CHARS_MAX],
                parameters=parameters,
                effect=_effect(tool),
                execute=execute(tool.name),
                tier="enabled",
                category="mcp",
            )
        )
    return found


def _names(server: str, given: list[str]) -> list[str]:
    """`server__tool` of each; one that is too long, or that two would share, ends with a hash of the true name."""
    plain = [re.sub(r"[^A-Za-z0-9_-]", "_", f"{server}__{name}") for name in given]
    count = Counter(name.casefold() for name in plain)
    return [
        name if len(name) <= NAME_CHARS_MAX and count[name.casefold()] == 1 else _hashed(name, true)
        for name, true in zip(plain, given, strict=True)
    ]


def _hashed(name: str, true: str) -> str:
    return f"{name[: NAME_CHARS_MAX - HASH_CHARS - 1]}_{hashlib.sha256(true.encode()).hexdigest()[:HASH_CHARS]}"


def _problem(tool: mcp.Tool, parameters: str) -> str:
    if tool.input_schema.get("type") != "object":
        return 'inputSchema: {"type": "object", …} is expected'
    try:
        compile_schema(parameters)
    except ValueError as error:
        return f"inputSchema: {str(error).splitlines()[0]}"
    return ""


def _effect(tool: mcp.Tool) -> Effect:
    """Hints are taken at their word (tools.md, Details): the server is one that the operator has chosen."""
    hints = tool.annotations
    if hints is not None and hints.read_only_hint:
        return "read"
    return "idempotent" if hints is not None and hints.idempotent_hint else "once"
