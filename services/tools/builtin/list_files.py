from __future__ import annotations

import json
from collections.abc import AsyncGenerator

from headrace.v1 import tools_pb2
from services.tools.toolkit.tool import Tool, ToolContext, make_result
from services.tools.workspace.file_work import run_in_thread
from services.tools.workspace.tree_walk import DEPTH_MAX, compile_glob

FILES_MAX = 500
"""A model does better with a narrower folder than with a longer list."""

PARAMETERS = {
    "type": "object",
    "properties": {
        "path": {"type": "string", "description": "Folder in the workspace; without it: all of it"},
        "glob": {
            "type": "string",
            "minLength": 1,
            "description": "Only files whose path in that folder matches, for example *.csv or reports/**/*.md",
        },
        "depth": {
            "type": "integer",
            "minimum": 1,
            "maximum": DEPTH_MAX,
            "description": "How many levels of folders; 1 is the folder's own files; without it: all",
        },
    },
    "additionalProperties": False,
}


async def execute(context: ToolContext) -> AsyncGenerator[tools_pb2.ToolDelta]:
    path, glob = context.arguments.get("path", ""), context.arguments.get("glob")
    depth, matches = int(context.arguments.get("depth", DEPTH_MAX)), compile_glob(glob)
    workspace = await run_in_thread(path, context.open_workspace)
    files = await run_in_thread(path, lambda: workspace.list_files(path, FILES_MAX, matches=matches, depth_max=depth))
    lines = [f"{file.path} ({file.size_bytes} bytes)" for file in files[:FILES_MAX]]
    if len(files) > FILES_MAX:
        lines.append(f"[… more than {FILES_MAX} files; list a folder, or give a glob …]")
    # A file's name may hold bytes that are not UTF-8, which Python keeps as lone surrogates.
    yield make_result("\n".join(lines).encode(errors="replace").decode() or "no files")


TOOL = Tool(
    name="list_files",
    description="List the files of the chat's workspace, or of a folder in it, with their sizes.",
    parameters=json.dumps(PARAMETERS),
    effect="read",
    execute=execute,
)
