"""Tools that list, read and write files of the chat's workspace."""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncGenerator
from typing import NamedTuple, TextIO

from headrace.v1 import tools_pb2
from services.runtime.tokens.image_size import image_size
from services.tools.errors import ToolFailed
from services.tools.toolkit.tool import RESULT_CHARS_MAX, Tool, ToolContext, describe_parameters, make_result
from services.tools.workspace.content_types import HEAD_BYTES, IMAGE_BYTES_MAX, detect_charset, detect_type
from services.tools.workspace.file_work import run_in_thread
from services.tools.workspace.tree_walk import DEPTH_MAX, compile_glob
from services.tools.workspace.workspace import Workspace

FILES_MAX = 500
"""Maximum files listed; a narrower folder helps a model more than a longer list."""

NOTE_CHARS = 200

BYTES_READ_MAX = 64 * 1024 * 1024


async def _list_files(context: ToolContext) -> AsyncGenerator[tools_pb2.ToolDelta]:
    path, glob = context.arguments.get("path", ""), context.arguments.get("glob")
    depth, matches = int(context.arguments.get("depth", DEPTH_MAX)), compile_glob(glob)
    workspace = await run_in_thread(path, context.open_workspace)
    files = await run_in_thread(path, lambda: workspace.list_files(path, FILES_MAX, matches=matches, depth_max=depth))
    lines = [f"{file.path} ({file.size_bytes} bytes)" for file in files[:FILES_MAX]]
    if len(files) > FILES_MAX:
        lines.append(f"[… more than {FILES_MAX} files; list a folder, or give a glob …]")
    # A file's name may hold bytes that are not UTF-8, which Python keeps as lone surrogates.
    yield make_result("\n".join(lines).encode(errors="replace").decode() or "no files")


LIST_FILES = Tool(
    name="list_files",
    description="List the files of the chat's workspace, or of a folder in it, with their sizes.",
    parameters=describe_parameters(
        {
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
        }
    ),
    effect="read",
    execute=_list_files,
)


class _Place(NamedTuple):
    """Position to start reading, counted from 1."""

    line: int
    char: int


async def _read_file(context: ToolContext) -> AsyncGenerator[tools_pb2.ToolDelta]:
    path = context.arguments["path"]
    start = _Place(int(context.arguments.get("firstLine", 1)), int(context.arguments.get("firstChar", 1)))
    lines = context.arguments.get("lines")
    workspace = await run_in_thread(path, context.open_workspace)
    if picture := await run_in_thread(path, lambda: _describe_picture(workspace, path)):
        yield make_result(picture, shown=[path])
        return
    yield make_result(await run_in_thread(path, lambda: _read_lines(workspace, path, start, lines and int(lines))))


def _describe_picture(workspace: Workspace, path: str) -> str:
    """Return a line about a picture; empty for other files."""
    with workspace.open_file(path) as fd:
        size = image_size(os.pread(fd, HEAD_BYTES, 0))
        size_bytes = os.fstat(fd).st_size
        if size is None:
            return ""
        if size_bytes > IMAGE_BYTES_MAX:
            raise ToolFailed(f"{path!r} is too large to be shown ({size_bytes} bytes); make it smaller")
        return f"[{detect_type(fd, path).mime_type}: {path}, {size[0]} x {size[1]} pixels, {size_bytes} bytes]"


def _read_lines(workspace: Workspace, path: str, start: _Place, lines: int | None) -> str:
    with workspace.open_file(path) as fd:
        size_bytes = os.fstat(fd).st_size
        if size_bytes > BYTES_READ_MAX:  # checked before the charset, which requires reading the whole file
            raise ToolFailed(f"{path!r} is too large to read ({size_bytes} bytes); search it with a command")
        charset = detect_charset(fd)
        if charset is None:
            kind = detect_type(fd, path).mime_type
            raise ToolFailed(f"{path!r} is not a text file but {kind} ({size_bytes} bytes)")
        os.lseek(fd, len(charset.mark), os.SEEK_SET)
        # Lines end as grep and commands count them: a carriage return alone ends none.
        with open(fd, encoding=charset.name, errors="replace", newline="\n", closefd=False) as file:
            text, notes = _take_lines(file, start, lines)
    if size_bytes == len(charset.mark):
        notes = ["the file is empty"]
    notes += [] if charset.is_utf8 else [f"decoded from {charset.name}"]
    return text + (f"\n[… {'; '.join(notes)} …]" if notes else "").removeprefix("" if text else "\n")


def _take_lines(file: TextIO, start: _Place, lines: int | None) -> tuple[str, list[str]]:
    """Return the text that fits, from `start` on, and notes: where to continue, or that `start` is past the end."""
    for _ in range(min(start.line - 1, sys.maxsize)):
        if not _skip_line(file):
            return "", [f"the file ends before line {start.line}"]
    if _skip_chars(file, start.char - 1):
        return "", [f"line {start.line} ends before character {start.char}"]
    taken, room = list[str](), RESULT_CHARS_MAX - NOTE_CHARS
    line, char = start.line, start.char
    while lines is None or line - start.line < lines:
        piece = file.readline(room + 1)
        if not piece:
            return "".join(taken), [f"the file ends before line {line}"] if not taken and start.line > 1 else []
        if len(piece) > room:
            if taken:
                return "".join(taken), [f"cut here; go on with firstLine {line}"]
            return piece[:room], [f"cut here; go on with firstLine {line}, firstChar {char + room}"]
        room -= len(piece)
        taken.append(piece)
        line, char = line + 1, 1
    return "".join(taken), []


def _skip_line(file: TextIO) -> bool:
    """Skip a line of any length in little memory; return whether there was one."""
    piece = first = file.readline(RESULT_CHARS_MAX)
    while piece and piece[-1] != "\n":
        piece = file.readline(RESULT_CHARS_MAX)
    return first != ""


def _skip_chars(file: TextIO, count: int) -> bool:
    """Skip characters of a line; return whether it ends first."""
    while count > 0:
        piece = file.readline(min(count, RESULT_CHARS_MAX))
        if not piece or piece[-1] == "\n":
            return True
        count -= len(piece)
    return False


READ_FILE = Tool(
    name="read_file",
    description="Read a text file of the chat's workspace; long files come in parts: go on where the note says. "
    "A picture (PNG, JPEG, GIF, WebP) is shown to you, if you see images.",
    parameters=describe_parameters(
        {
            "path": {
                "type": "string",
                "minLength": 1,
                "description": "Path in the workspace, for example uploads/a.txt",
            },
            "firstLine": {"type": "integer", "minimum": 1, "description": "Line to start at; 1 is the first"},
            "firstChar": {"type": "integer", "minimum": 1, "description": "Character of that line to start at"},
            "lines": {"type": "integer", "minimum": 1, "description": "Most lines to read"},
        },
        "path",
    ),
    effect="read",
    execute=_read_file,
)


async def _write_file(context: ToolContext) -> AsyncGenerator[tools_pb2.ToolDelta]:
    path, data = context.arguments["path"], context.arguments["content"].encode()
    workspace = await run_in_thread(path, context.open_workspace)
    await run_in_thread(path, lambda: workspace.write_file(path, data))
    yield make_result(f"wrote {len(data)} bytes to {path}")


WRITE_FILE = Tool(
    name="write_file",
    description=(
        "Write a text file into the chat's workspace, replacing what is there and making folders as needed. "
        "Files for the user belong into outputs/."
    ),
    parameters=describe_parameters(
        {
            "path": {
                "type": "string",
                "minLength": 1,
                "description": "Path in the workspace, for example outputs/a.md",
            },
            "content": {"type": "string", "description": "The file's whole content"},
        },
        "path",
        "content",
    ),
    effect="idempotent",
    execute=_write_file,
)
