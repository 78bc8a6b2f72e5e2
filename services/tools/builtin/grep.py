"""Streams the lines of text files that match a pattern, which runs in RE2 so that none is slow."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, Iterator
from typing import Any

import re2

from headrace.v1 import tools_pb2
from services.tools.errors import ToolFailed
from services.tools.toolkit.tool import Tool, ToolContext, describe_parameters, make_output, make_result
from services.tools.workspace.content_types import detect_charset
from services.tools.workspace.file_work import run_in_thread
from services.tools.workspace.tree_walk import compile_glob
from services.tools.workspace.workspace import Workspace, WorkspaceFile

FILES_MAX = 10_000

FILE_BYTES_MAX = 16 * 1024 * 1024
"""Maximum size of a file, held in memory; larger ones are skipped."""

BYTES_MAX = 512 * 1024 * 1024

MATCHES_MAX = 200

LINE_CHARS_MAX = 300

RE2_BYTES_MAX = 8 * 1024 * 1024

PARAMETERS = describe_parameters(
    {
        "pattern": {
            "type": "string",
            "minLength": 1,
            "maxLength": 1000,
            "description": "Regular expression (RE2: no look-around, no back-references), matched within lines",
        },
        "path": {"type": "string", "description": "Folder or file in the workspace; without it: all of it"},
        "glob": {"type": "string", "minLength": 1, "description": "Only such files, for example *.py or src/**/*.md"},
        "ignoreCase": {"type": "boolean", "description": "Take A for a"},
        "filesOnly": {"type": "boolean", "description": "Only the paths of files that match"},
    },
    "pattern",
)


async def execute(context: ToolContext) -> AsyncGenerator[tools_pb2.ToolDelta]:
    path, files_only = context.arguments.get("path", ""), context.arguments.get("filesOnly", False)
    pattern = _compile_pattern(context.arguments["pattern"], context.arguments.get("ignoreCase", False))
    workspace = await run_in_thread(path, context.open_workspace)
    files = await run_in_thread(path, lambda: _list_candidates(workspace, path, context.arguments.get("glob")))
    matches, room_bytes, left_out = list[str](), BYTES_MAX, 0
    for file in files[:FILES_MAX]:
        if len(matches) >= MATCHES_MAX:
            break
        if file.size_bytes > min(FILE_BYTES_MAX, room_bytes):
            left_out += 1
            continue
        room_bytes -= file.size_bytes
        lines = await run_in_thread(path, lambda file=file: _search_file(workspace, file, pattern))
        lines = [_printable(file.path)] if lines and files_only else lines[: MATCHES_MAX - len(matches)]
        if lines:
            matches += lines
            yield make_output("text", "".join(f"{line}\n" for line in lines))
    yield make_result(
        "\n".join(matches or ["no matches"]) + _format_note(len(matches), left_out, len(files) > FILES_MAX)
    )


def _compile_pattern(pattern: str, ignore_case: bool) -> Any:
    options = re2.Options()
    options.case_sensitive = not ignore_case
    options.never_nl = True
    options.max_mem = RE2_BYTES_MAX
    options.log_errors = False
    try:
        return re2.compile(b"(?m)(?:%b)" % pattern.encode(), options)
    except re2.error as error:
        reason = b"".join(arg for arg in error.args if isinstance(arg, bytes)).decode(errors="replace")
        raise ToolFailed(f"pattern: {reason or error}") from None


def _list_candidates(workspace: Workspace, path: str, glob: str | None) -> list[WorkspaceFile]:
    try:
        return workspace.list_files(path, FILES_MAX, matches=compile_glob(glob))
    except NotADirectoryError:
        with workspace.open_file(path) as fd:
            return [WorkspaceFile(path, os.fstat(fd).st_size)]


def _search_file(workspace: Workspace, file: WorkspaceFile, pattern: Any) -> list[str]:
    """Return the matching lines; none for a file that is not text or was deleted."""
    try:
        with workspace.open_file(file.path) as fd, open(fd, "rb", closefd=False) as opened:
            charset = detect_charset(fd)
            content = opened.read(FILE_BYTES_MAX)
    except (OSError, ValueError):
        return []
    if charset is None:
        return []
    content = content[len(charset.mark) :] if charset.is_utf8 else charset.decode(content).encode(errors="replace")
    # Or no pattern that ends with $ would match in a file of Windows.
    content = content.replace(b"\r\n", b"\n")
    return list(_format_matches(_printable(file.path), content, pattern))


def _format_matches(path: str, content: bytes, pattern: Any) -> Iterator[str]:
    number, counted, end, count = 1, 0, -1, 0
    # A line is shown once: the search continues after it, or a pattern such as x* would match at each of its bytes.
    while end < len(content) and (match := pattern.search(content, end + 1)) is not None:
        start = content.rfind(b"\n", 0, match.start()) + 1
        end = content.find(b"\n", match.start())
        end = len(content) if end < 0 else end
        number += content.count(b"\n", counted, start)
        counted = start
        yield f"{path}:{number}: {_cut_line(content, start, end, match.start())}"
        count += 1
        if count == MATCHES_MAX:
            return


def _cut_line(content: bytes, start: int, end: int, match: int) -> str:
    if end - start <= LINE_CHARS_MAX:
        return content[start:end].decode(errors="replace")
    first = max(start, match - LINE_CHARS_MAX // 3)
    return f"…{content[first : min(end, first + LINE_CHARS_MAX)].decode(errors='replace')}…"


def _printable(path: str) -> str:
    # Python keeps a name's bytes that are not UTF-8 as lone surrogates.
    return path.encode(errors="replace").decode()


def _format_note(matches: int, left_out: int, has_more_files: bool) -> str:
    notes = ["more matches are not shown; narrow the pattern, the path or the glob"] if matches >= MATCHES_MAX else []
    if left_out:
        notes.append(f"{left_out} large files were not searched; use a command")
    if has_more_files:
        notes.append(f"only the first {FILES_MAX} files were searched")
    return f"\n[… {'; '.join(notes)} …]" if notes else ""


GREP = Tool(
    name="grep",
    description=(
        "Search the text files of the chat's workspace for a regular expression; the answer has path, line number and "
        "line of each match."
    ),
    parameters=PARAMETERS,
    effect="read",
    execute=execute,
)
