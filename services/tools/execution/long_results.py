"""What the model gets of a result: all of it, or its start and its end and the path of the file that has the whole."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncGenerator
from contextlib import aclosing

import structlog

from headrace.v1 import agent_pb2, tools_pb2
from services.tools.errors import ToolFailed
from services.tools.toolkit.file_work import in_thread
from services.tools.toolkit.tool import RESULT_CHARS_MAX, Call, Tool, result
from services.tools.workspace.references import resource_url

log = structlog.get_logger()

FOLDER = "outputs/results"
"""Among the files for the user, so that a person finds what the model has seen a part of."""

HEAD_CHARS = 20_000
"""Kept from the start of a longer result; the rest of the room shows its end, where errors stand."""


async def finished(tool: Tool, call: Call) -> AsyncGenerator[tools_pb2.ToolDelta]:
    """Run the tool: what it streams, and last its result, which a failure of its own is too and which is bounded."""
    try:
        async with aclosing(tool.execute(call)) as deltas:
            async for delta in deltas:
                if delta.HasField("result") and len(delta.result.result) > RESULT_CHARS_MAX:
                    kept = await _keep(tool, call, delta.result.result)
                    if kept is not None:
                        yield tools_pb2.ToolDelta(artifact=kept)
                    delta.result.result = bounded(delta.result.result, f"{FOLDER}/{kept.name}" if kept else "")
                yield delta
    except ToolFailed as failure:
        yield result(bounded(str(failure), ""), ok=False)


def bounded(text: str, path: str) -> str:
    """`text`, or its start and its end around a note, RESULT_CHARS_MAX characters at most.

    The note has the full size and the `path` of the whole; without one the whole is lost.
    """
    if len(text) <= RESULT_CHARS_MAX:
        return text
    where = f"the whole is in {path}" if path else "the whole could not be kept"
    note = f"\n[… cut here: {len(text)} characters in all; this is the start and the end; {where} …]\n"
    return text[:HEAD_CHARS] + note + text[HEAD_CHARS + len(note) - RESULT_CHARS_MAX :]


async def _keep(tool: Tool, call: Call, text: str) -> agent_pb2.ArtifactPublish | None:
    """Write the whole result into the workspace; None when the workspace has no room for it."""
    # The same call writes the same file, however often it is repeated.
    call_id = hashlib.sha256(f"{call.request.run_id}/{call.request.tool_call_id}".encode()).hexdigest()[:8]
    name = f"{tool.name}-{call_id}.txt"
    path, data = f"{FOLDER}/{name}", text.encode(errors="replace")
    try:
        workspace = await in_thread(path, lambda: call.workspaces.open(call.chat_id))
        await in_thread(path, lambda: workspace.write(path, data))
    except ToolFailed as failure:
        log.warning("long result not kept", tool=tool.name, problem=str(failure))
        return None
    return agent_pb2.ArtifactPublish(
        artifact_id=f"artifact_{call_id}",
        run_id=call.request.run_id,
        name=name,
        mime_type="text/plain",
        size_bytes=len(data),
        url=resource_url(call.chat_id, path),
    )
