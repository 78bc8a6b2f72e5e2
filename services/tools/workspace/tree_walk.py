"""Walks a folder in path order, bounded, while others may be changing it.

Folders are opened beneath the start's descriptor and never through a link. Patterns of paths become RE2 patterns, which
match in linear time: `*`, `?` and `[a-z]` match within a name, `**` across folders, `{a,b}` one of several; a pattern
without a slash applies to the name only.
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

from services.tools.errors import ToolFailed
from services.tools.sandbox.supervisor.kernel import open_beneath

ENTRIES_MAX = 50_000
"""Maximum names that one walk examines, in 0.3 s; a command may create more than quota.py allows."""

DEPTH_MAX = 64

_SKIPPED = frozenset({ENOENT, ENOTDIR, ELOOP, EXDEV, EACCES, ENAMETOOLONG})
"""Errors of a folder that was removed, swapped or closed since its name was read, or is too deep."""

CHARS_MAX = 500

_PIECES = re.compile(r"\*\*/|\*\*|\*|\?|\[!?[^\]/\[\\]+\]|[{},]|.", re.DOTALL)
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
    options = re2.Options()
    options.log_errors = False
    options.dot_nl = True
    try:
        pattern = re2.compile(_to_expression(glob if "/" in glob else f"**/{glob}"), options)
    except re2.error:
        raise ToolFailed(
            f"glob: {glob!r} cannot be read; write for example *.py, src/**/*.md or *.{{csv,tsv}}"
        ) from None
    # A name may hold bytes that are not UTF-8, which Python keeps as lone surrogates.
    return lambda path: pattern.fullmatch(path.encode(errors="replace").decode()) is not None


def _to_expression(glob: str) -> str:
    depth, pieces = 0, list[str]()
    for piece in _PIECES.findall(glob.removeprefix("./").removeprefix("/")):
        if piece in _MEANINGS:
            pieces.append(_MEANINGS[piece])
        elif len(piece) > 2 and piece[0] == "[":
            pieces.append("[^" + piece[2:] if piece[1] == "!" else piece)
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
