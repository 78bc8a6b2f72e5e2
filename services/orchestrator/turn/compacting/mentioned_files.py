"""Workspace files that a context mentions, ranked for its summary."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import orjson
import structlog

from headrace.errors import HeadraceError
from headrace.v1 import llm_pb2, memory_pb2
from services.orchestrator.peers.stubs import Peers
from services.orchestrator.peers.workspace_files import list_workspace, read_start

log = structlog.get_logger()


WRITING_TOOLS = frozenset({"write_file", "edit_file"})

_WORD = re.compile(r"[^\s\"'`<>()\[\]{},;:|*?，。；：、（）《》「」“”]+")
"""`src/a.py` does not count as a mention of `a.py`."""

_EXTENSION = re.compile(r"\.[A-Za-z0-9]{1,10}(?![\w./+-])", re.ASCII)
"""Ends a name in scripts that use no spaces."""

_NAME_CHARS_MAX = 255
_NAMES_MAX = 4

_SPLIT = re.compile(r"[\w./+-]{2}", re.ASCII)
"""Matches between two characters of one name."""

_QUOTE = re.compile(r"[`\"“”\n]")
"""Encloses names with spaces."""


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
        """Find the longest path in a word of a script without spaces."""
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


FILES_MAX = 5
LINES_MAX = 1000

READ_BYTES_MAX = 1024 * 1024
"""Bytes read per file; a thousand lines seldom have more."""


async def collect_files(peers: Peers, context: memory_pb2.LoadContextRequest) -> list[memory_pb2.ContextFile]:
    """Return the files mentioned in the whole context, of which a turn may see only a part.

    The most important come first; unreadable ones are left out.
    """
    chat_id = context.chat_id
    listed = await list_workspace(peers, chat_id)
    paths = frozenset(file.path for file in listed.files) if listed is not None else None
    found: list[memory_pb2.ContextFile] = []
    for path in await asyncio.to_thread(_rank_paths, await _load_messages(peers, context), paths) if paths else ():
        data = await read_start(peers, chat_id, path, READ_BYTES_MAX)
        if data is not None and b"\0" not in data:
            lines = data.decode(errors="replace").splitlines()
            omitted = max(0, len(lines) - LINES_MAX)
            found.append(memory_pb2.ContextFile(path=path, text="\n".join(lines[:LINES_MAX]), lines_omitted=omitted))
        if len(found) == FILES_MAX:
            break
    return found


async def _load_messages(peers: Peers, context: memory_pb2.LoadContextRequest) -> Sequence[llm_pb2.Message]:
    try:
        loaded = await peers.memory.LoadContext(context)
    except HeadraceError as error:
        # A summary without files is worth more than none.
        log.warning("files not looked for", reason=error.reason)
        return []
    return loaded.messages


def _rank_paths(messages: Sequence[llm_pb2.Message], paths: Collection[str]) -> list[str]:
    mentions = PathMentions(paths)
    for message in messages:
        mentions.read_text("".join(part.text for part in message.content))
        for call in message.tool_calls:
            mentions.read_call(call)
    return mentions.rank_paths()
