"""Reads the tools folder's definitions and views.

A bad file is logged and its last good version stays in force; a name that is defined twice is refused everywhere.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias, TypeVar

import structlog

from services.tools.catalogue.definitions import (
    KINDS,
    BadDefinition,
    Definition,
    parse_definitions,
    parse_json,
    read_text,
)
from services.tools.catalogue.views import SUFFIXES, View, find_definitions, parse_view
from services.tools.toolkit.tool import Kind

log = structlog.get_logger()

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class FileDefinition:
    file: str
    kind: Kind
    definition: Definition


_Content: TypeAlias = View | tuple[FileDefinition, ...]


class ToolsFolder:
    """Definitions and views are replaced together in one step."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._good: dict[Path, _Content] = {}
        self.definitions: tuple[FileDefinition, ...] = ()
        self.views: dict[str, View] = {}
        """Views by key in lower case."""

    def reload(self) -> None:
        """Reads the folder again; never raises for the content of a file."""
        paths = sorted(path for path in self.path.glob("*.*") if path.suffix in (*KINDS, *SUFFIXES))
        self._good = {path: good for path in paths if (good := self._read_file(path)) is not None}
        stated = [each for content in self._good.values() if isinstance(content, tuple) for each in content]
        views = [(path.name, content) for path, content in self._good.items() if isinstance(content, View)]
        self.definitions = tuple(_drop_duplicates(stated, lambda each: (each.file, each.definition.name)))
        self.views = {
            view.key.casefold(): view for _, view in _drop_duplicates(views, lambda each: (each[0], each[1].key))
        }

    def _read_file(self, path: Path) -> _Content | None:
        try:
            return _parse_file(path)
        except BadDefinition as problem:
            last_good = self._good.get(path)
            log.error("tool file refused", file=path.name, problem=str(problem), last_good_kept=last_good is not None)
            return last_good


def _parse_file(path: Path) -> _Content:
    text = read_text(path)
    kind = KINDS.get(path.suffix, "frontend")
    value = parse_json(text) if path.suffix in KINDS else find_definitions(path, text)
    if value is None and path.suffix not in KINDS:
        return parse_view(path, text)
    return tuple(FileDefinition(path.name, kind, definition) for definition in parse_definitions(value, kind))


def _drop_duplicates(items: list[T], named: Callable[[T], tuple[str, str]]) -> Iterable[T]:
    files: dict[str, list[str]] = {}
    for file, name in map(named, items):
        files.setdefault(name.casefold(), []).append(file)
    for item in items:
        file, name = named(item)
        if len(duplicates := files[name.casefold()]) == 1:
            yield item
        else:
            problem = f"name: defined more than once, in {', '.join(dict.fromkeys(duplicates))}"
            log.error("tool refused", file=file, tool=name, problem=problem)
