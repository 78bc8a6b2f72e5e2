"""Replaces passages of a text file.

Text that already is the new text is left alone, so a call may be repeated after a crash.
"""

from __future__ import annotations

import json
import os
from collections.abc import AsyncGenerator

from headrace.v1 import tools_pb2
from services.tools.errors import ToolFailed
from services.tools.toolkit.context import ToolContext
from services.tools.toolkit.file_work import run_in_thread
from services.tools.toolkit.tool import Tool, make_result
from services.tools.workspace.workspace import Workspace

BYTES_MAX = 8 * 1024 * 1024
"""Limit of a file, which is held in memory twice; larger ones are for commands."""

LINES_SHOWN_MAX = 10

PARAMETERS = {
    "type": "object",
    "properties": {
        "path": {"type": "string", "minLength": 1, "description": "Path in the workspace, for example outputs/a.md"},
        "oldText": {
            "type": "string",
            "minLength": 1,
            "description": "The passage to replace, exactly as it stands in the file, with its spaces and line ends; "
            "long enough to occur once",
        },
        "newText": {"type": "string", "description": "What takes its place; empty to delete it"},
        "replaceAll": {"type": "boolean", "description": "Replace each occurrence; without it there must be one"},
    },
    "required": ["path", "oldText", "newText"],
    "additionalProperties": False,
}


async def execute(context: ToolContext) -> AsyncGenerator[tools_pb2.ToolDelta]:
    path, old, new = (context.arguments[name] for name in ("path", "oldText", "newText"))
    if old == new:
        raise ToolFailed("oldText and newText are the same: there is nothing to change")
    every = context.arguments.get("replaceAll", False)
    workspace = await run_in_thread(path, context.open_workspace)
    yield make_result(
        await run_in_thread(path, lambda: _replace_text(workspace, path, old.encode(), new.encode(), every))
    )


def _replace_text(workspace: Workspace, path: str, old: bytes, new: bytes, every: bool) -> str:
    with workspace.lock:
        content = _read_content(workspace, path)
        # Where the new text contains the old one, what has been replaced already is not replaced again.
        pieces = content.split(new) if old in new else [content]
        count = sum(piece.count(old) for piece in pieces)
        if count == 0 and new and new in content:
            return f"nothing to change: {path} has newText already"
        if count == 0:
            raise ToolFailed(_explain_no_match(path, content, old))
        if count > 1 and not every:
            raise ToolFailed(
                f"oldText occurs {count} times in {path!r} (lines {_find_lines(content, old)}); "
                "add lines around it until it occurs once, or set replaceAll"
            )
        # Before it is made: each letter of a file may become a megabyte.
        if (size_bytes := len(content) + count * (len(new) - len(old))) > max(BYTES_MAX, len(content)):
            raise ToolFailed(f"{path!r} would be too large to edit ({size_bytes} bytes); use a command")
        workspace.write_file(path, new.join(piece.replace(old, new) for piece in pieces))
    return f"replaced {count} occurrence{'s' if count > 1 else ''} in {path}"


def _read_content(workspace: Workspace, path: str) -> bytes:
    with workspace.open_file(path) as fd:
        size_bytes = os.fstat(fd).st_size
        if size_bytes > BYTES_MAX:
            raise ToolFailed(f"{path!r} is too large to edit ({size_bytes} bytes); use a command")
        with open(fd, "rb", closefd=False) as file:
            content = file.read(BYTES_MAX)
    if b"\0" in content[:8192]:
        raise ToolFailed(f"{path!r} is not a text file")
    return content


def _explain_no_match(path: str, content: bytes, old: bytes) -> str:
    text = f"oldText occurs 0 times in {path!r}"
    if b"\r\n" in content and b"\r\n" not in old and old.replace(b"\n", b"\r\n") in content:
        return f"{text}: its lines end with \\r\\n, those of oldText with \\n"
    if b"".join(old.split()) in b"".join(content.split()):
        return f"{text}, but would without its spaces and line ends: copy them exactly"
    return f"{text}: read the file and copy the passage exactly"


def _find_lines(content: bytes, old: bytes) -> str:
    numbers, at, line = list[str](), 0, 1
    while (position := content.find(old, at)) >= 0 and len(numbers) < LINES_SHOWN_MAX:
        line += content.count(b"\n", at, position)
        numbers.append(str(line))
        line += content.count(b"\n", position, position + len(old))
        at = position + len(old)
    return ", ".join(numbers) + (", …" if position >= 0 else "")


TOOL = Tool(
    name="edit_file",
    description=(
        "Replace a passage of a text file in the chat's workspace. The passage must stand in the file exactly as "
        "given, and once unless replaceAll is set."
    ),
    parameters=json.dumps(PARAMETERS),
    effect="idempotent",
    execute=execute,
)
