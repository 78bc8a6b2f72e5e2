"""Shortens long results for the model; a file has the whole."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing

import structlog

from headrace.v1 import agent_pb2, tools_pb2
from services.runtime.rpc.call_ids import list_tool_credentials
from services.tools.errors import ToolFailed
from services.tools.execution.secret_mask import list_forms, mask_deltas, mask_text
from services.tools.toolkit.context import ToolContext
from services.tools.toolkit.file_work import run_in_thread
from services.tools.toolkit.tool import RESULT_CHARS_MAX, Tool, make_result
from services.tools.workspace.references import resource_url

log = structlog.get_logger()

FOLDER = "outputs/results"

HEAD_CHARS = 20_000
"""Characters kept of the beginning; the rest of the room is for the end, where errors stand."""


async def run_bounded(tool: Tool, context: ToolContext) -> AsyncGenerator[tools_pb2.ToolDelta]:
    """Streams a tool's output and, last, its result with a bounded length; a ToolFailed becomes one."""
    try:
        async with aclosing(mask_deltas(_execute_in_time(tool, context), list_tool_credentials())) as deltas:
            async for delta in deltas:
                if delta.HasField("result") and len(delta.result.result) > RESULT_CHARS_MAX:
                    artifact = await _save_result(tool, context, delta.result.result)
                    if artifact is not None:
                        yield tools_pb2.ToolDelta(artifact=artifact)
                    delta.result.result = shorten_result(
                        delta.result.result, f"{FOLDER}/{artifact.name}" if artifact else ""
                    )
                yield delta
    except ToolFailed as failure:
        text = mask_text(str(failure), list_forms(list_tool_credentials()))  # before a cut could leave half of one
        yield make_result(shorten_result(text, ""), ok=False)


async def _execute_in_time(tool: Tool, context: ToolContext) -> AsyncGenerator[tools_pb2.ToolDelta]:
    # Commands, interpreters, MCP servers and what asks a model keep the time by themselves; what writes is not cut.
    is_limited = tool.effect == "read" and not (tool.needs & {"sandbox", "model"} or tool.server)
    due_s = asyncio.get_running_loop().time() + context.timeout_s if is_limited and context.timeout_s else None
    async with aclosing(tool.execute(context)) as deltas:
        while True:
            try:
                async with asyncio.timeout_at(due_s):
                    delta = await anext(deltas, None)
            except TimeoutError:
                raise ToolFailed(f"ended after {context.timeout_s:g} s: its time was over") from None
            if delta is None:
                return
            yield delta


def shorten_result(text: str, path: str) -> str:
    """Cuts out the middle, where a note has the full size and the `path`."""
    if len(text) <= RESULT_CHARS_MAX:
        return text
    where = f"the whole is in {path}" if path else "the whole could not be kept"
    note = f"\n[… cut here: {len(text)} characters in all; this is the start and the end; {where} …]\n"
    return text[:HEAD_CHARS] + note + text[HEAD_CHARS + len(note) - RESULT_CHARS_MAX :]


async def _save_result(tool: Tool, context: ToolContext, text: str) -> agent_pb2.ArtifactPublish | None:
    name = f"{tool.name}-{context.short_id}.txt"
    path, data = f"{FOLDER}/{name}", text.encode(errors="replace")
    try:
        workspace = await run_in_thread(path, context.open_workspace)
        await run_in_thread(path, lambda: workspace.write_file(path, data))
    except ToolFailed as failure:
        log.warning("long result not kept", tool=tool.name, problem=str(failure))
        return None
    return agent_pb2.ArtifactPublish(
        artifact_id=f"artifact_{context.short_id}",
        run_id=context.request.run_id,
        name=name,
        mime_type="text/plain",
        size_bytes=len(data),
        url=resource_url(context.chat_id, path),
    )
