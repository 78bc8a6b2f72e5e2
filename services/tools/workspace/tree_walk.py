"""Walks a folder in path order, bounded, while others may be changing it.

Folders are opened beneath the start's descriptor and never through a link. Patterns of paths become RE2 patterns, which
match in linear time: `*`, `?` and `[a-z]` match within a name, `**` across folders, `{a,b}` one of several, and a
backslash makes the next character literal; a pattern without a slash applies to the name only. `[id]` and `{id}` also
match themselves, because there are folders with such names.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Callable, Generator
from dataclasses import dataclass
from errno import EACCES, ELOOP, ENAMETOOLONG, ENOENT, ENOTDIR, EXDEV
from itertools import islice

import re2

from services.runtime.formats.normal_form import normalize_text
from services.tools.errors import ToolFailed
from services.tools.sandbox.supervisor.kernel import open_beneath

ENTRIES_MAX = 50_000
"""Maximum names that one walk examines, in 0.3 s; a command may create more than quota.py allows."""

DEPTH_MAX = 64

_SKIPPED = frozenset({ENOENT, ENOTDIR, ELOOP, EXDEV, EACCES, ENAMETOOLONG})
"""Errors of a folder that was removed, swapped or closed since its name was read, or is too deep."""

CHARS_MAX = 500

_PIECES = re.compile(r"\\.|\*\*/|\*\*|\*|\?|\[!?[^\]/\[\\]+\]|\{[^{},/\\]+\}|[{},]|.", re.DOTALL)
_OPTIONS = re2.Options()
_OPTIONS.log_errors = False
_OPTIONS.dot_nl = True

_LOOKALIKES = {
    **dict.fromkeys((0xA0, *range(0x2000, 0x200B), 0x202F, 0x205F, 0x3000), " "),
    **dict.fromkeys((0x2018, 0x2019), "'"),
    **dict.fromkeys((0x201C, 0x201D), '"'),
}
"""Spaces and quotes that systems put into names, such as macOS into those of screenshots."""

_MEANINGS = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}


@dataclass(frozen=True, slots=True)
class TreeEntry:
    path: str

    status: os.stat_result
    """For a link its own status, not its target's."""

    @property
    def is_file(self) -> bool:
        return stat.S_ISREG(self.status.st_mode)


def walk_tree(folder_fd: int, *, depth_max: int = DEPTH_MAX) -> Generator[TreeEntry]:
    """Yield entries by path, up to ENTRIES_MAX; close it to stop early. `depth_max` 1 means the folder's own files."""
    room = ENTRIES_MAX
    # Folders and files to come, the next one last; a folder's path ends with a slash, which also sorts it right.
    waiting: list[TreeEntry | str] = ["./"]
    while waiting:
        item = waiting.pop()
        if isinstance(item, TreeEntry):
            yield item
        elif room > 0:
            entries = _read_entries(folder_fd, item, room)
            room -= len(entries)
            waiting += sorted(
                (entry for entry in entries if isinstance(entry, TreeEntry) or entry.count("/") <= depth_max),
                key=lambda entry: entry if isinstance(entry, str) else f"./{entry.path}",
                reverse=True,
            )


def _read_entries(folder_fd: int, path: str, entries_max: int) -> list[TreeEntry | str]:
    try:
        fd = open_beneath(folder_fd, path, os.O_RDONLY | os.O_DIRECTORY, follow_links=False)
    except OSError as error:
        if error.errno in _SKIPPED and path != "./":
            return []
        raise
    try:
        with os.scandir(fd) as entries:
            return [
                tree_entry
                for entry in islice(entries, entries_max)
                if (tree_entry := _make_entry(path, entry)) is not None
            ]
    finally:
        os.close(fd)


def _make_entry(folder: str, entry: os.DirEntry[str]) -> TreeEntry | str | None:
    path = folder + entry.name
    try:
        if entry.is_dir(follow_symlinks=False):
            return path + "/"
        return TreeEntry(path.removeprefix("./"), entry.stat(follow_symlinks=False))
    except FileNotFoundError:
        return None


def compile_glob(glob: str | None) -> Callable[[str], bool]:
    """Compile a pattern; without one each path matches. Raises ToolFailed."""
    if not glob:
        return bool
    if len(glob) > CHARS_MAX:
        raise ToolFailed(f"glob: longer than {CHARS_MAX} characters")
    try:
        pattern = re2.compile(_to_expression(glob if "/" in glob else f"**/{glob}"), _OPTIONS)
    except re2.error:
        raise ToolFailed(
            f"glob: {glob!r} cannot be read; write for example *.py, src/**/*.md or *.{{csv,tsv}}"
        ) from None
    return lambda path: pattern.fullmatch(fold_name(path)) is not None


def fold_name(name: str) -> str:
    """Return a name as lists show it and models repeat it: with composed characters and ordinary spaces and quotes."""
    # A name may hold bytes that are not UTF-8, which Python keeps as lone surrogates.
    shown = name.encode(errors="replace").decode()
    return normalize_text("NFC", shown).translate(_LOOKALIKES)


def _to_expression(glob: str) -> str:
    depth, pieces = 0, list[str]()
    for piece in _PIECES.findall(fold_name(glob.removeprefix("./").removeprefix("/"))):
        if piece in _MEANINGS:
            pieces.append(_MEANINGS[piece])
        elif len(piece) > 1 and piece[0] == "\\":
            pieces.append(re2.escape(piece[1]))
        elif len(piece) > 2:
            pieces.append(f"(?:{_to_inner_expression(piece)}|{re2.escape(piece)})")
        elif piece == "{":
            depth += 1
            pieces.append("(?:")
        elif piece == "}" and depth:
            depth -= 1
            pieces.append(")")
        elif piece == "," and depth:
            pieces.append("|")
        else:
            pieces.append(re2.escape(piece))
    return "".join(pieces)


def _to_inner_expression(piece: str) -> str:
    """Return what brackets stand for, or braces around one name."""
    if piece[0] == "{":
        return _to_expression(piece[1:-1])
    expression = "[^" + piece[2:] if piece[1] == "!" else piece
    try:
        re2.compile(expression, _OPTIONS)
    except re2.error:  # [user-id] is no range
        return re2.escape(piece)
    return expression
