from __future__ import annotations

import json
import os
import sys
from collections.abc import AsyncGenerator, Iterable, Iterator
from itertools import islice
from typing import TextIO

from headrace.v1 import tools_pb2
from services.runtime.tokens.image_size import image_size
from services.tools.errors import ToolFailed
from services.tools.toolkit.context import ToolContext
from services.tools.toolkit.file_work import run_in_thread
from services.tools.toolkit.tool import RESULT_CHARS_MAX, Tool, make_result
from services.tools.workspace.content_types import HEAD_BYTES, IMAGE_BYTES_MAX, detect_type
from services.tools.workspace.workspace import Workspace

NOTE_CHARS = 200

BYTES_READ_MAX = 64 * 1024 * 1024

PARAMETERS = {
    "type": "object",
    "properties": {
        "path": {"type": "string", "minLength": 1, "description": "Path in the workspace, for example uploads/a.txt"},
        "firstLine": {"type": "integer", "minimum": 1, "description": "Line to start at; 1 is the first"},
        "lines": {"type": "integer", "minimum": 1, "description": "Most lines to read"},
    },
    "required": ["path"],
    "additionalProperties": False,
}


async def execute(context: ToolContext) -> AsyncGenerator[tools_pb2.ToolDelta]:
    path = context.arguments["path"]
    first, lines = context.arguments.get("firstLine", 1), context.arguments.get("lines")
    workspace = await run_in_thread(path, context.open_workspace)
    if picture := await run_in_thread(path, lambda: _describe_picture(workspace, path)):
        yield make_result(picture, shown=[path])
        return
    yield make_result(await run_in_thread(path, lambda: _read_lines(workspace, path, int(first), lines and int(lines))))


def _describe_picture(workspace: Workspace, path: str) -> str:
    """Returns a line about a picture; empty for other files."""
    with workspace.open_file(path) as fd:
        size = image_size(os.pread(fd, HEAD_BYTES, 0))
        size_bytes = os.fstat(fd).st_size
        if size is None:
            return ""
        if size_bytes > IMAGE_BYTES_MAX:
            raise ToolFailed(f"{path!r} is too large to be shown ({size_bytes} bytes); make it smaller")
        return f"[{detect_type(fd, path).mime_type}: {path}, {size[0]} x {size[1]} pixels, {size_bytes} bytes]"


def _read_lines(workspace: Workspace, path: str, first: int, lines: int | None) -> str:
    with workspace.open_file(path) as fd:
        size_bytes = os.fstat(fd).st_size
        if b"\0" in os.pread(fd, 8192, 0):
            raise ToolFailed(f"{path!r} is not a text file ({size_bytes} bytes)")
        if size_bytes > BYTES_READ_MAX:
            raise ToolFailed(f"{path!r} is too large to read ({size_bytes} bytes); search it with a command")
        with open(fd, encoding="utf-8", errors="replace", newline="", closefd=False) as file:
            return _take_lines(_iterate_lines(file), first, lines)


def _iterate_lines(file: TextIO) -> Iterator[str]:
    """Yields lines, and no more of a long one than a result may hold, so that none is ever whole in memory."""
    while line := file.readline(RESULT_CHARS_MAX):
        yield line
        while line and line[-1] not in "\r\n":
            line = file.readline(RESULT_CHARS_MAX)


def _take_lines(file: Iterable[str], first: int, lines: int | None) -> str:
    """Returns the lines that fit; a note after them says where to go on."""
    room, taken = RESULT_CHARS_MAX - NOTE_CHARS, list[str]()
    start = min(first - 1, sys.maxsize)
    stop = None if lines is None else min(start + lines, sys.maxsize)
    for number, line in enumerate(islice(file, start, stop), start=first):
        if len(line) > room:
            if not taken:
                taken.append(line[:room])
                number += 1
            return f"{''.join(taken)}\n[… cut here; go on with firstLine {number} …]"
        room -= len(line)
        taken.append(line)
    return "".join(taken) if taken or first == 1 else f"[… the file ends before line {first} …]"


TOOL = Tool(
    name="read_file",
    description="Read a text file of the chat's workspace; long files come in parts: go on with firstLine. A picture "
    "(PNG, JPEG, GIF, WebP) is shown to you, if you see images.",
    parameters=json.dumps(PARAMETERS),
    effect="read",
    execute=execute,
)
