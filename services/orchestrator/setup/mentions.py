"""Mentions in a message: `@name` for a tool, a skill or an agent, `#file.name` for an upload.

CJK text may stand directly before a name; e-mail addresses are no mentions.
"""

from __future__ import annotations

import re
from collections.abc import Collection

MENTIONS_MAX = 32
"""Messages with more are pasted text."""

_NAME = re.compile(r"(?<![A-Za-z0-9._%+@-])@((?>[A-Za-z0-9_](?:[A-Za-z0-9_.-]{0,126}[A-Za-z0-9_])?))(?![@A-Za-z0-9_])")
_END = r"\s\"'#@<>|*?,;:!()\[\]{}，。；：、！？（）【】《》"
_FILE = re.compile(rf"(?<![A-Za-z0-9&/#])#(?:\"([^\"\n]{{1,255}})\"|([^{_END}]{{1,255}}))")

_ENDING = re.compile(r"[^.]\.[A-Za-z][A-Za-z0-9]{0,7}$")


def find_names(message: str) -> list[str]:
    """Return the names behind `@` in what the user says, without code and what is quoted (`> `)."""
    parts = message.split("```")[::2]  # every other one is a code block
    lines = (line for part in parts for line in part.split("\n") if not line.lstrip().startswith(">"))
    said = "\n".join(" ".join(line.split("`")[::2]) for line in lines)
    found = {match[1].casefold(): match[1] for match in _NAME.finditer(said)}
    return [*found.values()][:MENTIONS_MAX]


def find_files(message: str, paths: Collection[str]) -> list[str]:
    return [*dict.fromkeys(path for path in _match_files(message, paths).values() if path)][:MENTIONS_MAX]


def find_missing_files(message: str, paths: Collection[str]) -> list[str]:
    """Return the names of no file in `paths` that are meant as one: quoted, or with a file's ending."""
    missing = (name for name, path in _match_files(message, paths).items() if path is None)
    quoted = {match[1] for match in _FILE.finditer(message)}
    return [name for name in missing if name in quoted or _ENDING.search(name)][:MENTIONS_MAX]


def _match_files(message: str, paths: Collection[str]) -> dict[str, str | None]:
    by_name: dict[str, str] = {}
    for shorten in (_get_last_part, _get_part_in_uploads, str):
        by_name |= {shorten(path): path for path in paths}
    found: dict[str, str | None] = {}
    for match in _FILE.finditer(message):
        wanted = match[1] or match[2]
        # A full stop behind the name is the sentence's, unless there is such a file.
        name = wanted if wanted in by_name else wanted.rstrip(".")
        found[name] = by_name.get(name)
    return found


def _get_last_part(path: str) -> str:
    return path.rpartition("/")[2]


def _get_part_in_uploads(path: str) -> str:
    return path.removeprefix("uploads/")
