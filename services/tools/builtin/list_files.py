"""list_files: what is in the workspace."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator

from headrace.v1 import tools_pb2
from services.tools.files import in_thread
from services.tools.tool import Call, Tool, result

FILES_MAX = 500
"""A longer list says nothing to a model that a narrower folder does not say better."""

PARAMETERS = {
    "type": "object",
    "properties": {"path": {"type": "string", "description": "Folder in the workspace; without it: all of it"}},
    "additionalProperties": False,
}


async def execute(call: Call) -> AsyncGenerator[tools_pb2.ToolDelta]:
    path = call.arguments.get("path", "")
    workspace = await in_thread(path, lambda: call.workspaces.open(call.chat_id))
    files = await in_thread(path, lambda: workspace.files(path, FILES_MAX))
    lines = [f"{file.path} ({file.size_bytes} bytes)" for file in files[:FILES_MAX]]
    if len(files) > FILES_MAX:
        lines.append(f"[… more than {FILES_MAX} files; list a folder …]")
    # A file's name may hold bytes that are not UTF-8, which Python keeps as lone surrogates.
    yield result("\n".join(lines).encode(errors="replace").decode() or "no files")


TOOL = Tool(
    name="list_files",
    description="List the files of the chat's workspace, or of a folder in it, with their sizes.",
    parameters=json.dumps(PARAMETERS),
    effect="read",
    execute=execute,
)
