"""Results of MCP servers: repaired before the SDK reads them, then converted to our own."""

from __future__ import annotations

import base64
import binascii
import json
import mimetypes
from collections.abc import AsyncGenerator, Sequence
from typing import Any

import mcp_types as types
from mcp_types import methods
from pydantic import ValidationError

from headrace.v1 import agent_pb2, tools_pb2
from services.runtime.formats.json_form import JSON_DEPTH_MAX, measure_json_depth
from services.runtime.formats.json_schema import compile_schema, describe_violations
from services.runtime.tokens.image_size import MIME_TYPES, SOUND_TYPES
from services.tools.errors import ToolFailed
from services.tools.toolkit.tool import ToolContext, make_result
from services.tools.workspace.content_types import IMAGE_BYTES_MAX, detect_type
from services.tools.workspace.file_work import run_in_thread

LISTED_MAX = 512
"""Maximum tools of a page, or blocks of a wrong result, that are examined."""

KIND_CHARS_MAX = 100

REQUIRED = {
    "text": ("type", "text"),
    "image": ("type", "data", "mimeType"),
    "audio": ("type", "data", "mimeType"),
    "resource_link": ("type", "name", "uri"),
    "resource": ("type", "resource"),
}
"""Required fields of a block, by its type."""

BASE64 = str.maketrans({"\r": None, "\n": None, "-": "+", "_": "/"})
"""Translates the base64 of mails and URLs to the standard alphabet."""

ABOUT_CHARS_MAX = 500
"""Longest description of a linked resource, and longest address of one that is kept as a file."""

FILES_MAX = 20
"""Maximum files kept of one response; others are only mentioned."""

FOLDER = "outputs"

SHOWN_TYPES = (*MIME_TYPES.values(), *SOUND_TYPES)


class ResultRepair:
    """Keeps the data about a session's listed tools that is withheld from the SDK."""

    def __init__(self) -> None:
        self.refused: dict[str, str] = {}
        """Why a tool was left out, by its name."""
        self.output_schemas: dict[str, str] = {}
        """JSON Schema of a tool's structured content, by name; the SDK would refuse a whole result that violates it."""

    def repair(self, result: dict[str, Any], version: str) -> None:
        """Repair a result of tools/list or tools/call; others are unchanged."""
        if isinstance(tools := result.get("tools"), list):
            rest = {**result, "tools": []}
            if not _find_problem("tools/list", version, rest):
                result["tools"] = [tool for tool in tools[:LISTED_MAX] if self._take_tool(tool, rest, version)]
        elif not result.keys().isdisjoint(("content", "structuredContent", "isError")):
            _repair_content(result, version)

    def remark_mismatch(self, tool: str, answer: types.CallToolResult) -> None:
        """Add a note to a result whose structured content does not match the tool's schema."""
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
            self.output_schemas.pop(name, None)
            schema = tool.pop("outputSchema", None)
            if isinstance(schema, dict) and measure_json_depth(schema) <= JSON_DEPTH_MAX:
                self.output_schemas[name] = json.dumps(schema)
        problem = _find_problem("tools/list", version, rest | {"tools": [tool]})
        if problem:
            self.refused[name] = problem
        return not problem


def repair_introduction(result: dict[str, Any]) -> None:
    """Complete what a server says of itself before its version is agreed; PHP writes an empty object as []."""
    if "capabilities" in result:
        declared = result["capabilities"] if isinstance(result["capabilities"], dict) else {}
        result["capabilities"] = {key: {} if value == [] else value for key, value in declared.items()}
    if "protocolVersion" in result:
        given = result.get("serverInfo")
        facts = given if isinstance(given, dict) else {}
        result["serverInfo"] = facts | {key: str(facts.get(key) or "unknown") for key in ("name", "version")}


def _repair_content(result: dict[str, Any], version: str) -> None:
    for key in [key for key, value in result.items() if value is None]:
        del result[key]
    given = result.get("content", [])
    given = given if isinstance(given, list) else [given]
    result["content"] = [_make_text(block) if isinstance(block, str) else block for block in given[:LISTED_MAX]]
    result["content"] += given[LISTED_MAX:]
    if not _find_problem("tools/call", version, result):
        return
    rest = {key: value for key, value in result.items() if key != "structuredContent"} | {"content": []}
    if _find_problem("tools/call", version, rest):
        return
    if any(isinstance(block, dict) and block.get("type") == "error" for block in result["content"]):
        result["isError"] = True
    content = [_repair_block(block, rest, version) for block in result["content"][:LISTED_MAX]]
    if len(given) > LISTED_MAX:
        content.append(_make_text(f"[{len(given) - LISTED_MAX} more parts left out]"))
    structured = result.get("structuredContent")
    if _find_problem("tools/call", version, rest | {"structuredContent": structured}):
        result.pop("structuredContent", None)
        content.append(_make_text(json.dumps(structured, ensure_ascii=False)))
    result["content"] = content


def _repair_block(block: Any, rest: dict[str, Any], version: str) -> dict[str, Any]:
    """Return a block without optional fields that are wrong; its text or a remark if that does not suffice."""
    if not _find_problem("tools/call", version, rest | {"content": [block]}):
        return block
    kind = str(block.get("type") if isinstance(block, dict) else type(block).__name__)[:KIND_CHARS_MAX]
    if isinstance(block, dict):
        if kind not in REQUIRED:  # frameworks have types of their own: "error", "json", "markdown"
            value = block.get("text", block.get("json"))
            if value is not None:
                return _make_text(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))
        block = {"name": block.get("uri"), "mimeType": "application/octet-stream"} | block
        block = {key: block.get(key) for key in REQUIRED.get(kind, ())}
        if isinstance(block.get("text"), dict | list):
            block["text"] = json.dumps(block["text"], ensure_ascii=False)
        if not _find_problem("tools/call", version, rest | {"content": [block]}):
            return block
    return _make_text(f"[content of type {kind!r} left out: it breaks the protocol]")


def _make_text(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def _find_problem(method: str, version: str, result: dict[str, Any]) -> str:
    """Return how a result violates the protocol, below the first item of its list; empty if it does not."""
    try:
        methods.validate_server_result(method, version, result)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False, include_context=False)[0]
        place = ".".join(map(str, first["loc"][2:]))
        return f"{place}: {first['msg']}" if place else first["msg"]
    except (KeyError, ValueError):
        pass  # a version unknown to the SDK
    return ""


async def stream_result(context: ToolContext, answer: types.CallToolResult) -> AsyncGenerator[tools_pb2.ToolDelta]:
    texts, shown = list[str](), list[str]()
    files = 0
    for block in answer.content:
        if isinstance(block, types.TextContent):
            texts.append(block.text)
        elif isinstance(block, types.ResourceLink):
            kind = f", {block.mime_type}" if block.mime_type else ""
            text = f"[resource {block.title or block.name}{kind}: {block.uri}]"
            texts.append(f"{text} {(block.description or '')[:ABOUT_CHARS_MAX]}".rstrip())
        elif isinstance(block, types.EmbeddedResource) and isinstance(block.resource, types.TextResourceContents):
            texts.append(f"[{block.resource.uri}]\n{block.resource.text}")
        else:
            files, address = files + 1, ""
            if isinstance(block, types.EmbeddedResource):
                assert isinstance(block.resource, types.BlobResourceContents)
                data, kind = block.resource.blob, block.resource.mime_type or "application/octet-stream"
                address = f"[{block.resource.uri[:ABOUT_CHARS_MAX]}] "
            else:
                data, kind = block.data, block.mime_type
            note, artifact = await _save_file(context, files, data, kind)
            texts.append(address + note)
            if artifact is not None:
                yield tools_pb2.ToolDelta(artifact=artifact)
                if artifact.mime_type in SHOWN_TYPES and artifact.size_bytes <= IMAGE_BYTES_MAX:
                    shown.append(f"{FOLDER}/{artifact.name}")
    if answer.structured_content is not None and not (
        answer.content and _is_repeated(answer.structured_content, answer.content)
    ):
        texts.append(json.dumps(answer.structured_content, ensure_ascii=False))
    yield make_result("\n".join(texts) or "(no output)", ok=not answer.is_error, shown=shown)


def _is_repeated(structured: Any, content: Sequence[types.ContentBlock]) -> bool:
    """Return whether the blocks repeat the structured content or its only member, as JSON, verbatim or as blocks."""
    texts = [block.text for block in content if isinstance(block, types.TextContent)]
    results = [structured]
    if isinstance(structured, dict) and len(structured) == 1:  # how SDKs and servers wrap what is no object
        results += structured.values()
    loaded = [_load(text) for text in texts]
    blocks = [block.model_dump(mode="json", by_alias=True, exclude_none=True) for block in content]
    return any(repeated in results for repeated in (*texts, *loaded, loaded, blocks))


def _load(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


async def _save_file(
    context: ToolContext, number: int, data: str, kind: str
) -> tuple[str, agent_pb2.ArtifactPublish | None]:
    """Save a file; return a note, and the artifact unless there was no room."""
    kind = kind[:KIND_CHARS_MAX]
    if number > FILES_MAX:
        return f"[{kind}: not kept, one of more than {FILES_MAX}]", None
    name = f"{context.request.tool_name}-{context.short_id}-{number}{mimetypes.guess_extension(kind) or '.bin'}"
    path = f"{FOLDER}/{name}"
    try:
        data = (data.partition(";base64,")[2] if data.startswith("data:") else data).translate(BASE64).rstrip("=")
        content = base64.b64decode(data + "=" * (-len(data) % 4), validate=True)
        found_kind = await run_in_thread(path, lambda: _write_file(context, path, content))
    except binascii.Error:
        return f"[{kind}: it is not base64]", None
    except ToolFailed as failure:
        return f"[{kind}: not kept: {failure}]", None
    return f"[{kind}: {path}]", context.make_artifact(f"{context.short_id}_{number}", path, found_kind, len(content))


def _write_file(context: ToolContext, path: str, content: bytes) -> str:
    workspace = context.open_workspace()
    workspace.write_file(path, content)
    with workspace.open_file(path) as fd:
        return detect_type(fd, path).mime_type
