"""What a server's tool answers, as what the model gets: text as it is, everything else as a file and a note."""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import mimetypes
from collections.abc import AsyncGenerator

import mcp_types as types

from headrace.v1 import agent_pb2, tools_pb2
from services.tools.errors import ToolFailed
from services.tools.toolkit.file_work import in_thread
from services.tools.toolkit.tool import Call, result
from services.tools.workspace.content_types import content_type
from services.tools.workspace.references import resource_url

FILES_MAX = 20
"""Of one answer; the others are only mentioned."""


KIND_CHARS_MAX = 100
"""Of a MIME type, as the server states it."""


async def deltas(call: Call, answer: types.CallToolResult) -> AsyncGenerator[tools_pb2.ToolDelta]:
    """Its files as artifacts, then its result."""
    texts: list[str] = []
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
            note, artifact = await _kept(call, files, *_file(block))
            texts.append(note)
            if artifact is not None:
                yield tools_pb2.ToolDelta(artifact=artifact)
    if not texts and answer.structured_content is not None:
        texts.append(json.dumps(answer.structured_content, ensure_ascii=False))
    yield result("\n".join(texts) or "(no output)", ok=not answer.is_error)


def _file(block: types.ImageContent | types.AudioContent | types.EmbeddedResource) -> tuple[str, str]:
    """Base64 and MIME type of a block that is no text."""
    if isinstance(block, types.EmbeddedResource):
        assert isinstance(block.resource, types.BlobResourceContents)
        return block.resource.blob, block.resource.mime_type or "application/octet-stream"
    return block.data, block.mime_type


async def _kept(call: Call, number: int, data: str, kind: str) -> tuple[str, agent_pb2.ArtifactPublish | None]:
    """A note for the model, and the file among the workspace's outputs when there is room for it."""
    kind = kind[:KIND_CHARS_MAX]
    if number > FILES_MAX:
        return f"[{kind}: not kept, one of more than {FILES_MAX}]", None
    # The same call writes the same files, however often it is repeated.
    call_id = hashlib.sha256(f"{call.request.run_id}/{call.request.tool_call_id}".encode()).hexdigest()[:8]
    name = f"{call.request.tool_name}-{call_id}-{number}{mimetypes.guess_extension(kind) or '.bin'}"
    path = f"outputs/{name}"
    try:
        content = base64.b64decode(data, validate=True)
        found_kind = await in_thread(path, lambda: _store(call, path, content))
    except binascii.Error:
        return f"[{kind}: it is not base64]", None
    except ToolFailed as failure:
        return f"[{kind}: not kept: {failure}]", None
    artifact = agent_pb2.ArtifactPublish(
        artifact_id=f"artifact_{call_id}_{number}",
        run_id=call.request.run_id,
        name=name,
        mime_type=found_kind,
        size_bytes=len(content),
        url=resource_url(call.chat_id, path),
    )
    return f"[{kind}: {path}]", artifact


def _store(call: Call, path: str, content: bytes) -> str:
    """Write the file, and tell its type by content. Blocks."""
    workspace = call.workspaces.open(call.chat_id)
    workspace.write(path, content)
    with workspace.reading(path) as fd:
        return content_type(fd, path).mime_type
