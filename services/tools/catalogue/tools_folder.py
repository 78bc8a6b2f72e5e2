"""The tools folder: what its files state, without the bad and the doubled.

A bad file is named in the log and its last good version stays in force; the other files go on. A name stated twice is
refused wherever it stands.
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
from services.tools.catalogue.views import SUFFIXES, View, definitions_in, parse_view
from services.tools.toolkit.tool import Kind

log = structlog.get_logger()

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Stated:
    """One definition and where it stands."""

    file: str
    kind: Kind
    definition: Definition


_Content: TypeAlias = View | tuple[Stated, ...]
"""Of one file."""


class ToolsFolder:
    """The files of one folder. `reload` replaces what is in force in one step."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._good: dict[Path, _Content] = {}
        self.stated: tuple[Stated, ...] = ()
        self.views: dict[str, View] = {}
        """By their key without regard to case."""

    def reload(self) -> None:
        """Read the folder again; never raises for what a file holds."""
        paths = sorted(path for path in self.path.glob("*.*") if path.suffix in (*KINDS, *SUFFIXES))
        self._good = {path: good for path in paths if (good := self._read(path)) is not None}
        stated = [each for content in self._good.values() if isinstance(content, tuple) for each in content]
        views = [(path.name, content) for path, content in self._good.items() if isinstance(content, View)]
        self.stated = tuple(_unique(stated, lambda each: (each.file, each.definition.name)))
        self.views = {view.key.casefold(): view for _, view in _unique(views, lambda each: (each[0], each[1].key))}

    def _read(self, path: Path) -> _Content | None:
        """What the file holds, or its last good content; None when it never had any."""
        try:
            return _content(path)
        except BadDefinition as problem:
            kept = self._good.get(path)
            log.error("tool file refused", file=path.name, problem=str(problem), last_good_kept=kept is not None)
            return kept


def _content(path: Path) -> _Content:
    text = read_text(path)
    kind = KINDS.get(path.suffix, "frontend")
    value = parse_json(text) if path.suffix in KINDS else definitions_in(path, text)
    if value is None and path.suffix not in KINDS:
        return parse_view(path, text)
    return tuple(Stated(path.name, kind, definition) for definition in parse_definitions(value, kind))


def _unique(items: list[T], named: Callable[[T], tuple[str, str]]) -> Iterable[T]:
    """Items whose name no other has; the others are refused, all of them. `named` gives file and name."""
    files: dict[str, list[str]] = {}
    for file, name in map(named, items):
        files.setdefault(name.casefold(), []).append(file)
    for item in items:
        file, name = named(item)
        if len(found := files[name.casefold()]) == 1:
            yield item
        else:
            problem = f"name: defined more than once, in {', '.join(dict.fromkeys(found))}"
            log.error("tool refused", file=file, tool=name, problem=problem)
