"""Turns MCP answers into results: text as it is, all else as files, of which the model is shown pictures and sounds."""

from __future__ import annotations

import base64
import binascii
import json
import mimetypes
from collections.abc import AsyncGenerator, Iterable
from typing import Any

import mcp_types as types

from headrace.v1 import agent_pb2, tools_pb2
from services.runtime.tokens.image_size import MIME_TYPES
from services.runtime.tokens.sound_type import SOUND_TYPES
from services.tools.errors import ToolFailed
from services.tools.toolkit.context import ToolContext
from services.tools.toolkit.file_work import run_in_thread
from services.tools.toolkit.tool import make_result
from services.tools.workspace.content_types import IMAGE_BYTES_MAX, detect_type
from services.tools.workspace.references import resource_url

FILES_MAX = 20
"""Files kept of one answer; the others are only mentioned."""

FOLDER = "outputs"

SHOWN_TYPES = (*MIME_TYPES.values(), *SOUND_TYPES)

KIND_CHARS_MAX = 100


async def stream_result(context: ToolContext, answer: types.CallToolResult) -> AsyncGenerator[tools_pb2.ToolDelta]:
    texts, shown = list[str](), list[str]()
    files = 0
    for block in answer.content:
        if isinstance(block, types.TextContent):
            texts.append(block.text)
        elif isinstance(block, types.ResourceLink):
            texts.append(f"[resource {block.name}: {block.uri}]")
        elif isinstance(block, types.EmbeddedResource) and isinstance(block.resource, types.TextResourceContents):
            texts.append(f"[{block.resource.uri}]\n{block.resource.text}")
        else:
            files += 1
            if isinstance(block, types.EmbeddedResource):
                assert isinstance(block.resource, types.BlobResourceContents)
                data, kind = block.resource.blob, block.resource.mime_type or "application/octet-stream"
            else:
                data, kind = block.data, block.mime_type
            note, artifact = await _save_file(context, files, data, kind)
            texts.append(note)
            if artifact is not None:
                yield tools_pb2.ToolDelta(artifact=artifact)
                if artifact.mime_type in SHOWN_TYPES and artifact.size_bytes <= IMAGE_BYTES_MAX:
                    shown.append(f"{FOLDER}/{artifact.name}")
    if answer.structured_content is not None and not _is_told(answer.structured_content, answer.content):
        texts.append(json.dumps(answer.structured_content, ensure_ascii=False))
    yield make_result("\n".join(texts) or "(no output)", ok=not answer.is_error, shown=shown)


def _is_told(structured: Any, content: Iterable[types.ContentBlock]) -> bool:
    """Whether the text blocks say what the structured content says, as JSON or, of a single result, as they are."""
    texts = [block.text for block in content if isinstance(block, types.TextContent)]
    results = [structured]
    if isinstance(structured, dict) and structured.keys() == {"result"}:  # how the Python SDK wraps what is no object
        results.append(structured["result"])
    loaded = [_load(text) for text in texts]
    return any(said in results for said in (*texts, *loaded, loaded))


def _load(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


async def _save_file(
    context: ToolContext, number: int, data: str, kind: str
) -> tuple[str, agent_pb2.ArtifactPublish | None]:
    """Saves a file; returns a note, and the artifact unless there was no room."""
    kind = kind[:KIND_CHARS_MAX]
    if number > FILES_MAX:
        return f"[{kind}: not kept, one of more than {FILES_MAX}]", None
    name = f"{context.request.tool_name}-{context.short_id}-{number}{mimetypes.guess_extension(kind) or '.bin'}"
    path = f"{FOLDER}/{name}"
    try:
        content = base64.b64decode(data, validate=True)
        found_kind = await run_in_thread(path, lambda: _write_file(context, path, content))
    except binascii.Error:
        return f"[{kind}: it is not base64]", None
    except ToolFailed as failure:
        return f"[{kind}: not kept: {failure}]", None
    artifact = agent_pb2.ArtifactPublish(
        artifact_id=f"artifact_{context.short_id}_{number}",
        run_id=context.request.run_id,
        name=name,
        mime_type=found_kind,
        size_bytes=len(content),
        url=resource_url(context.chat_id, path),
    )
    return f"[{kind}: {path}]", artifact


def _write_file(context: ToolContext, path: str, content: bytes) -> str:
    workspace = context.open_workspace()
    workspace.write_file(path, content)
    with workspace.open_file(path) as fd:
        return detect_type(fd, path).mime_type
