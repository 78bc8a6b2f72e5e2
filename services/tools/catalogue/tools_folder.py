"""Reads the tools folder's definitions and views, and the views in the folder viewports next to it.

A bad file is logged and its last valid version stays in force; a name defined twice is refused everywhere. A view is
HTML as text, or JSON, by its file's name. JSON with `tools` in a file of the tools folder with a view's suffix defines
frontend tools instead.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

from pydantic import TypeAdapter, ValidationError

from services.runtime.files.refused_files import REFUSED_FILES, report_refusal
from services.tools.catalogue.definitions import (
    KINDS,
    BadDefinition,
    Definition,
    ViewKey,
    parse_definitions,
    parse_json,
    read_text,
)
from services.tools.toolkit.tool import Kind

SUFFIXES = (".html", ".qlc", ".dqlc", ".json_schema", ".custom")

VIEWS_FOLDER = "viewports"
"""Folder next to the tools folder that holds only views; older configurations have it."""

MAY_DEFINE_TOOLS = (".html", ".qlc", ".dqlc")

_KEY: TypeAdapter[str] = TypeAdapter(ViewKey)

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class View:
    key: str
    text: str
    """JSON text keeps the file's bytes, so that large integers survive."""

    is_html: bool


def find_definitions(path: Path, text: str) -> Any:
    if path.suffix not in MAY_DEFINE_TOOLS or not text.lstrip().startswith("{"):
        return None
    try:
        value = parse_json(text)
    except BadDefinition:
        return None  # HTML may begin with a brace; invalid JSON is refused as a view
    return value if isinstance(value, Mapping) and "tools" in value else None


def parse_view(path: Path, text: str) -> View:
    is_html = path.suffix == ".html"
    if not is_html:
        parse_json(text)
    try:
        return View(_KEY.validate_python(path.stem), text, is_html)
    except ValidationError as error:
        raise BadDefinition(f"its name: {error.errors()[0]['msg']}") from error


@dataclass(frozen=True, slots=True)
class FileDefinition:
    file: str
    kind: Kind
    definition: Definition
    view_key: str = ""
    """Name of a view's file that defines the tool instead, so it cannot be its view; viewports/ may have a file of the
    same name."""


_Content: TypeAlias = View | tuple[FileDefinition, ...]


class ToolsFolder:
    """Definitions and views, which are replaced together in one step."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._good: dict[Path, _Content] = {}
        self._refused = 0
        self.definitions: tuple[FileDefinition, ...] = ()
        self.views: dict[str, View] = {}
        """Views by key in lower case."""

    def reload(self) -> None:
        """Read the folder again. Never raises for the content of a file."""
        paths = sorted(path for path in self.path.glob("[!.]*.*") if path.suffix in (*KINDS, *SUFFIXES))
        paths += sorted(path for path in self.path.with_name(VIEWS_FOLDER).glob("[!.]*.*") if path.suffix in SUFFIXES)
        self._refused = 0
        self._good = {path: good for path in paths if (good := self._read_file(path)) is not None}
        REFUSED_FILES.labels("tools").set(self._refused)
        stated = [each for content in self._good.values() if isinstance(content, tuple) for each in content]
        views = [(self._name(path), content) for path, content in self._good.items() if isinstance(content, View)]
        self.definitions = tuple(_drop_duplicates(stated, lambda each: (each.file, each.definition.name)))
        self.views = {
            view.key.casefold(): view for _, view in _drop_duplicates(views, lambda each: (each[0], each[1].key))
        }

    def _read_file(self, path: Path) -> _Content | None:
        try:
            return _parse_file(path) if path.parent == self.path else parse_view(path, read_text(path))
        except BadDefinition as problem:
            self._refused += 1
            last_good, file = self._good.get(path), self._name(path)
            report_refusal("tool file refused", file=file, problem=str(problem), last_good_kept=last_good is not None)
            return last_good

    def _name(self, path: Path) -> str:
        return path.name if path.parent == self.path else f"{VIEWS_FOLDER}/{path.name}"


def _parse_file(path: Path) -> _Content:
    text = read_text(path)
    if path.suffix in KINDS:
        return _list_definitions(path, parse_json(text), KINDS[path.suffix])
    value = find_definitions(path, text)
    if value is None:
        return parse_view(path, text)
    return _list_definitions(path, value, "frontend", path.stem)


def _list_definitions(path: Path, value: Any, kind: Kind, view_key: str = "") -> tuple[FileDefinition, ...]:
    stated = parse_definitions(value, kind)
    return tuple(FileDefinition(path.name, each.find_kind(kind), each, view_key) for each in stated)


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
            report_refusal("tool refused", file=file, tool=name, problem=problem)
