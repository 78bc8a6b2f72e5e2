"""Replaces passages of a text file, keeping its charset and line endings.

Text already equal to the new text is left alone, so a call may be repeated after a crash.
"""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator

from headrace.v1 import tools_pb2
from services.runtime.formats.normal_form import normalize_text
from services.tools.errors import ToolFailed
from services.tools.toolkit.tool import Tool, ToolContext, describe_parameters, make_result
from services.tools.workspace.content_types import Charset, detect_charset
from services.tools.workspace.file_work import run_in_thread
from services.tools.workspace.workspace import Workspace

BYTES_MAX = 8 * 1024 * 1024
"""Maximum size of a file, which is held in memory twice; larger ones are for commands."""

LINES_SHOWN_MAX = 10

PARAMETERS = describe_parameters(
    {
        "path": {"type": "string", "minLength": 1, "description": "Path in the workspace, for example outputs/a.md"},
        "oldText": {
            "type": "string",
            "minLength": 1,
            "description": "The passage to replace, exactly as it stands in the file, with its spaces; "
            "long enough to occur once",
        },
        "newText": {"type": "string", "description": "What takes its place; empty to delete it"},
        "replaceAll": {"type": "boolean", "description": "Replace each occurrence; without it there must be one"},
    },
    "path",
    "oldText",
    "newText",
)


async def execute(context: ToolContext) -> AsyncGenerator[tools_pb2.ToolDelta]:
    path, old, new = (context.arguments[name] for name in ("path", "oldText", "newText"))
    if old == new:
        raise ToolFailed("oldText and newText are the same: there is nothing to change")
    every = context.arguments.get("replaceAll", False)
    workspace = await run_in_thread(path, context.open_workspace)
    yield make_result(await run_in_thread(path, lambda: _replace_text(workspace, path, old, new, every)))


def _replace_text(workspace: Workspace, path: str, old: str, new: str, every: bool) -> str:
    with workspace.lock:
        content, charset = _read_content(workspace, path)
        old, new = _fit_form(content, old, new)
        # If the new text contains the old one, passages replaced earlier are not replaced again.
        pieces = content.split(new) if old in new else [content]
        count = sum(piece.count(old) for piece in pieces)
        if count == 0:
            raise ToolFailed(_explain_no_match(path, content, old, new))
        if count > 1 and not every:
            raise ToolFailed(
                f"oldText occurs {count} times in {path!r} (lines {_find_lines(content, old)}); "
                "add lines around it until it occurs once, or set replaceAll"
            )
        # Before it is made: each letter of a file may become a megabyte.
        if (size := len(content) + count * (len(new) - len(old))) > max(BYTES_MAX, len(content)):
            raise ToolFailed(f"{path!r} would be too large to edit ({size} characters); use a command")
        text = new.join(piece.replace(old, new) for piece in pieces)
        try:
            workspace.write_file(workspace.match_path(path), charset.encode(text))
        except UnicodeEncodeError as error:
            missing = text[error.start : error.start + 1]
            raise ToolFailed(
                f"{path!r} is in {charset.name}, which has no {missing!r}; write the file anew, in UTF-8"
            ) from None
    kept = "" if charset.is_utf8 else f", which stays in {charset.name}"
    return f"replaced {count} occurrence{'s' if count > 1 else ''} in {path}{kept}"


def _fit_form(content: str, old: str, new: str) -> tuple[str, str]:
    """Return both texts with the file's line endings and, if only they occur, with its composed or split characters."""
    given = _fit_line_ends(content, old, new)
    if given[0] in content:
        return given
    forms = (_fit_line_ends(content, normalize_text(form, old), normalize_text(form, new)) for form in ("NFC", "NFD"))
    return next((form for form in forms if form[0] in content), given)


def _fit_line_ends(content: str, old: str, new: str) -> tuple[str, str]:
    """Return both texts with the file's line endings, or with those of the passage if the file mixes them."""
    plain = old.replace("\r\n", "\n"), new.replace("\r\n", "\n")
    windows = plain[0].replace("\n", "\r\n"), plain[1].replace("\n", "\r\n")
    if 0 < content.count("\r\n") == content.count("\n"):
        return windows
    return next((form for form in ((old, new), plain, windows) if form[0] in content), plain)


def _read_content(workspace: Workspace, path: str) -> tuple[str, Charset]:
    with workspace.open_file(path) as fd:
        size_bytes = os.fstat(fd).st_size
        if size_bytes > BYTES_MAX:
            raise ToolFailed(f"{path!r} is too large to edit ({size_bytes} bytes); use a command")
        charset = detect_charset(fd)
        if charset is None:
            raise ToolFailed(f"{path!r} is not a text file")
        with open(fd, "rb", closefd=False) as file:
            return charset.decode(file.read(BYTES_MAX)), charset


def _explain_no_match(path: str, content: str, old: str, new: str) -> str:
    text = f"oldText occurs 0 times in {path!r}"
    if new and new in content:
        return f"{text}, which has newText already (lines {_find_lines(content, new)}); nothing was changed"
    if "".join(old.split()) in "".join(content.split()):
        return f"{text}, but would without its spaces and line ends: copy them exactly"
    return f"{text}: read the file and copy the passage exactly"


def _find_lines(content: str, old: str) -> str:
    numbers, at, line = list[str](), 0, 1
    while (position := content.find(old, at)) >= 0 and len(numbers) < LINES_SHOWN_MAX:
        line += content.count("\n", at, position)
        numbers.append(str(line))
        line += content.count("\n", position, position + len(old))
        at = position + len(old)
    return ", ".join(numbers) + (", …" if position >= 0 else "")


EDIT_FILE = Tool(
    name="edit_file",
    description=(
        "Replace a passage of a text file in the chat's workspace. The passage must stand in the file exactly as "
        "given, and once unless replaceAll is set."
    ),
    parameters=PARAMETERS,
    effect="idempotent",
    execute=execute,
)
