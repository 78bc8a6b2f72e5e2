"""Streams the lines of text files that match a pattern, which runs in RE2 so that none is slow."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import AsyncGenerator
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

STEPS_MAX = 200_000_000
"""Maximum bytes searched at once, times the pattern's instructions: 1.5 s if RE2 cannot keep its states. Files with
longer lines are not searched to the end."""

SECONDS_MAX = 5.0
"""Maximum processor time of a search, because its thread cannot be cancelled: an honest pattern reads 512 MB in 1 s, a
hostile one 0.1 MB."""

LARGE, NO_TEXT = "large files", "files that are not text"
"""Why a file was not searched, or not to its end."""

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
    matches, room_bytes, room_s, left_out = list[str](), BYTES_MAX, SECONDS_MAX, Counter[str]()
    for file in files[:FILES_MAX]:
        if len(matches) >= MATCHES_MAX or room_s <= 0:
            break
        if file.size_bytes > min(FILE_BYTES_MAX, room_bytes):
            left_out[LARGE] += 1
            continue
        room_bytes -= file.size_bytes
        lines, spent_s, problem = await run_in_thread(
            path, lambda file=file, room_s=room_s: _search_file(workspace, file, pattern, room_s)
        )
        room_s -= spent_s
        left_out[problem] += 1
        lines = [_printable(file.path)] if lines and files_only else lines[: MATCHES_MAX - len(matches)]
        if lines:
            matches += lines
            yield make_output("text", "".join(f"{line}\n" for line in lines))
    yield make_result(
        "\n".join(matches or ["no matches"])
        + _format_note(
            context.arguments["pattern"], len(matches), left_out, len(files) > FILES_MAX, is_stopped=room_s <= 0
        )
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


def _search_file(
    workspace: Workspace, file: WorkspaceFile, pattern: Any, room_s: float
) -> tuple[list[str], float, str]:
    """Return the matching lines, the processor time taken, and why not all of the file was searched.

    A file that was deleted has no lines.
    """
    began_s = time.thread_time()
    try:
        with workspace.open_file(file.path) as fd, open(fd, "rb", closefd=False) as opened:
            charset = detect_charset(fd)
            content = opened.read(FILE_BYTES_MAX)
    except (OSError, ValueError):
        return [], 0.0, ""
    if charset is None:
        return [], 0.0, NO_TEXT
    content = content[len(charset.mark) :] if charset.is_utf8 else charset.decode(content).encode(errors="replace")
    # Or no pattern that ends with $ would match in a file of Windows.
    content = content.replace(b"\r\n", b"\n")
    lines, is_whole = _find_lines(_printable(file.path), content, pattern, began_s + room_s)
    return lines, time.thread_time() - began_s, "" if is_whole else LARGE


def _find_lines(path: str, content: bytes, pattern: Any, until_s: float) -> tuple[list[str], bool]:
    lines, number, counted, place, is_whole = list[str](), 1, 0, 0, True
    piece_bytes = STEPS_MAX // pattern.programsize
    while place <= len(content) and len(lines) < MATCHES_MAX and time.thread_time() < until_s:
        stop = len(content)
        if stop - place > piece_bytes:
            stop = content.rfind(b"\n", place, place + piece_bytes)
            if stop < 0:
                is_whole = False
                stop = content.find(b"\n", place)
                place = stop + 1 if stop >= 0 else len(content) + 1
                continue
        match = pattern.search(content, place, stop)
        if match is None:
            place = stop + 1
            continue
        start = content.rfind(b"\n", 0, match.start()) + 1
        end = content.find(b"\n", match.start())
        end = len(content) if end < 0 else end
        number += content.count(b"\n", counted, start)
        counted = start
        lines.append(f"{path}:{number}: {_cut_line(content, start, end, match.start())}")
        # A line is shown once, or a pattern such as x* would match at each of its bytes.
        place = end + 1
    return lines, is_whole


def _cut_line(content: bytes, start: int, end: int, match: int) -> str:
    if end - start <= LINE_CHARS_MAX:
        return content[start:end].decode(errors="replace")
    first = max(start, match - LINE_CHARS_MAX // 3)
    return f"…{content[first : min(end, first + LINE_CHARS_MAX)].decode(errors='replace')}…"


def _printable(path: str) -> str:
    # Python keeps a name's bytes that are not UTF-8 as lone surrogates.
    return path.encode(errors="replace").decode()


def _format_note(pattern: str, matches: int, left_out: Counter[str], has_more_files: bool, *, is_stopped: bool) -> str:
    notes = ["more matches are not shown; narrow the pattern, the path or the glob"] if matches >= MATCHES_MAX else []
    kinds = (LARGE,) if matches else (LARGE, NO_TEXT)  # most workspaces have pictures
    notes += [f"{left_out[kind]} {kind} were not searched; use a command" for kind in kinds if left_out[kind]]
    if not matches and r"\|" in pattern:
        notes.append(r"\| is the character |; alternatives are one|other")
    if is_stopped:
        notes.append(f"stopped after {SECONDS_MAX:g} s; use a simpler pattern, or a narrower path or glob")
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
