"""Takes what breaks the protocol out of a result, so that the SDK refuses no other part of it."""

from __future__ import annotations

import json
from typing import Any

import mcp_types as types
from mcp_types import methods
from pydantic import ValidationError

from services.runtime.formats.json_depth import JSON_DEPTH_MAX, measure_json_depth
from services.runtime.formats.json_schema import compile_schema, describe_violations

LISTED_MAX = 512
"""Tools of a page that are looked at."""

KIND_CHARS_MAX = 100


class ResultRepair:
    """Keeps, of the tools that a session's server has listed, what the SDK is not given."""

    def __init__(self) -> None:
        self.refused: dict[str, str] = {}
        """Why a tool was left out, by its name."""
        self.output_schemas: dict[str, str] = {}
        """What a tool says of its structured content, as JSON; the SDK would refuse all of a result that breaks it."""

    def repair(self, result: dict[str, Any], version: str) -> None:
        """Change a result of tools/list or tools/call; others stay as they are."""
        if isinstance(tools := result.get("tools"), list):
            rest = {**result, "tools": []}
            if not _find_problem("tools/list", version, rest):
                result["tools"] = [tool for tool in tools[:LISTED_MAX] if self._take_tool(tool, rest, version)]
        elif isinstance(result.get("content"), list):
            _repair_content(result, version)

    def remark_mismatch(self, tool: str, answer: types.CallToolResult) -> None:
        """Add to an answer that its structured content does not fit what the tool says of it."""
        schema = self.output_schemas.get(tool)
        if answer.is_error or answer.structured_content is None or schema is None:
            return
        if problem := describe_violations(answer.structured_content, compile_schema(schema)):
            text = f"[its structured content does not fit the tool's outputSchema: {problem}]"
            answer.content.append(types.TextContent(text=text))

    def _take_tool(self, tool: Any, rest: dict[str, Any], version: str) -> bool:
        name = str(tool.get("name", "")) if isinstance(tool, dict) else ""
        if isinstance(tool, dict):
            if isinstance(schema := tool.setdefault("inputSchema", {}), dict):
                schema.setdefault("type", "object")
            self._keep_output_schema(name, tool.pop("outputSchema", None))
        problem = _find_problem("tools/list", version, rest | {"tools": [tool]})
        if problem:
            self.refused[name] = problem
        return not problem

    def _keep_output_schema(self, name: str, schema: Any) -> None:
        self.output_schemas.pop(name, None)
        if isinstance(schema, dict) and measure_json_depth(schema) <= JSON_DEPTH_MAX:
            self.output_schemas[name] = json.dumps(schema)


def _repair_content(result: dict[str, Any], version: str) -> None:
    rest = {key: value for key, value in result.items() if key != "structuredContent"} | {"content": []}
    if _find_problem("tools/call", version, rest):
        return
    content = [
        _describe(block) if _find_problem("tools/call", version, rest | {"content": [block]}) else block
        for block in result["content"]
    ]
    structured = result.get("structuredContent")
    if _find_problem("tools/call", version, rest | {"structuredContent": structured}):
        result.pop("structuredContent", None)
        content.append(_make_text(json.dumps(structured, ensure_ascii=False)))
    result["content"] = content


def _describe(block: Any) -> dict[str, Any]:
    kind = str(block.get("type") if isinstance(block, dict) else type(block).__name__)
    return _make_text(f"[content of type {kind[:KIND_CHARS_MAX]!r} left out: it breaks the protocol]")


def _make_text(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def _find_problem(method: str, version: str, result: dict[str, Any]) -> str:
    """Return how a result breaks the protocol, below the first item of its list; empty: it does not."""
    try:
        methods.validate_server_result(method, version, result)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False, include_context=False)[0]
        place = ".".join(map(str, first["loc"][2:]))
        return f"{place}: {first['msg']}" if place else first["msg"]
    except (KeyError, ValueError):
        pass  # a version of which the SDK has no forms
    return ""
