"""Ranks the paths that a conversation mentions."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

import orjson

from headrace.v1 import llm_pb2

WRITING_TOOLS = frozenset({"write_file", "edit_file"})

_WORD = re.compile(r"[^\s\"'`<>()\[\]{},;:|*?，。；：、（）《》「」“”]+")
"""`a.py` within `src/a.py` is no mention of `a.py`."""

_EXTENSION = re.compile(r"\.[A-Za-z0-9]{1,10}(?![\w./+-])", re.ASCII)
"""Ends a name in scripts that put no space around it."""

_NAME_CHARS_MAX = 255
_NAMES_MAX = 4

_SPLIT = re.compile(r"[\w./+-]{2}", re.ASCII)
"""Matches between two characters of one name."""

_QUOTE = re.compile(r"[`\"“”\n]")
"""Stands around names with spaces."""


@dataclass(slots=True)
class _PathCount:
    count: int = 0
    last: int = 0
    is_written: bool = False


class PathMentions:
    """Reads texts in order, in time linear in their size."""

    def __init__(self, paths: Collection[str]) -> None:
        self._paths = paths
        self._found: dict[str, _PathCount] = {}
        self._count = 0

    def read_text(self, text: str) -> None:
        for path in self._find_paths(text):
            found = self._found.setdefault(path, _PathCount())
            self._count += 1
            found.count += 1
            found.last = self._count

    def read_call(self, call: llm_pb2.ToolCall) -> None:
        """Read a call's arguments without the content that a file tool writes."""
        try:
            arguments = orjson.loads(call.arguments)
        except ValueError:
            return
        is_writing = call.name in WRITING_TOOLS and isinstance(arguments, dict)
        for text in _iterate_strings(arguments.get("path") if is_writing else arguments):
            self.read_text(text)
            path = _normalize_path(text)
            if is_writing and path in self._paths:
                self._found.setdefault(path, _PathCount()).is_written = True

    def rank_paths(self) -> list[str]:
        found = self._found.items()
        ranked = sorted(found, key=lambda item: (item[1].is_written, item[1].count, item[1].last), reverse=True)
        return [path for path, _ in ranked]

    def _find_paths(self, text: str) -> Iterator[str]:
        for match in _WORD.finditer(text):
            if (path := _normalize_path(match[0])) in self._paths:
                yield path
            elif not match[0].isascii():
                yield from self._find_in_word(match[0])
        yield from (
            path
            for quoted in _QUOTE.split(text)
            if " " in quoted and len(quoted) <= _NAME_CHARS_MAX and (path := _normalize_path(quoted)) in self._paths
        )

    def _find_in_word(self, word: str) -> Iterator[str]:
        """Find the longest path in a word whose script has no spaces."""
        for extension in islice(_EXTENSION.finditer(word), _NAMES_MAX):
            end = extension.end()
            for start in range(max(0, end - _NAME_CHARS_MAX), end):
                is_cut = start > 0 and bool(_SPLIT.match(word, start - 1))
                if not is_cut and word[start:end] in self._paths:
                    yield word[start:end]
                    break


def _normalize_path(path: str) -> str:
    return path.strip().removeprefix("./").rstrip(".!")


def _iterate_strings(value: Any) -> Iterator[str]:
    waiting = [value]
    while waiting:
        item = waiting.pop()
        if isinstance(item, str):
            yield item
        elif isinstance(item, dict):
            waiting.extend(reversed(list(item.values())))
        elif isinstance(item, list):
            waiting.extend(reversed(item))
