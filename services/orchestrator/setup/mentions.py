"""Mentions in a message: `@name` for a tool, a skill or an agent, `#file.name` for an upload.

CJK text may stand directly before a name; e-mail addresses are no mentions.
"""

from __future__ import annotations

import re

MENTIONS_MAX = 32
"""Messages with more are pasted text."""

_NAME = re.compile(r"(?<![A-Za-z0-9._%+@-])@((?>[A-Za-z0-9_](?:[A-Za-z0-9_.-]{0,126}[A-Za-z0-9_])?))(?![@A-Za-z0-9_])")
_END = r"\s\"'#@<>|*?,;:!()\[\]{}，。；：、！？（）【】《》"
_FILE = re.compile(rf"(?<![A-Za-z0-9&/#])#(?:\"([^\"\n]{{1,255}})\"|([^{_END}]{{1,255}}))")


def find_names(message: str) -> list[str]:
    found = {match[1].casefold(): match[1] for match in _NAME.finditer(message)}
    return [*found.values()][:MENTIONS_MAX]


def find_files(message: str, paths: list[str]) -> list[str]:
    by_name = {path.rpartition("/")[2]: path for path in paths} | {
        path.removeprefix("uploads/"): path for path in paths
    }
    by_name |= {path: path for path in paths}
    found: dict[str, None] = {}
    for match in _FILE.finditer(message):
        wanted = match[1] or match[2]
        # A full stop behind the name is the sentence's, unless there is such a file.
        path = by_name.get(wanted) or by_name.get(wanted.rstrip("."))
        if path is not None:
            found[path] = None
    return [*found][:MENTIONS_MAX]
