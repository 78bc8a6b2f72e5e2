"""Reads the views of frontend tools: HTML as text and the other forms as JSON, each by its file's name.

JSON with `tools` in a file of the tools folder with a view's suffix holds definitions of frontend tools instead.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from services.tools.catalogue.definitions import BadDefinition, ViewKey, format_problem, parse_json

SUFFIXES = (".html", ".qlc", ".dqlc", ".json_schema", ".custom")

VIEWS_FOLDER = "viewports"
"""Folder beside the tools folder that holds views alone; older configurations have it."""

MAY_DEFINE_TOOLS = (".html", ".qlc", ".dqlc")

_KEY: TypeAdapter[str] = TypeAdapter(ViewKey)


@dataclass(frozen=True, slots=True)
class View:
    key: str
    text: str
    """JSON text stays as it stands in the file, so that large integers survive."""

    is_html: bool


def find_definitions(path: Path, text: str) -> Any:
    if path.suffix not in MAY_DEFINE_TOOLS or not text.lstrip().startswith("{"):
        return None
    try:
        value = parse_json(text)
    except BadDefinition:
        return None  # HTML may begin with a brace; what must be JSON is refused as a view
    return value if isinstance(value, Mapping) and "tools" in value else None


def parse_view(path: Path, text: str) -> View:
    is_html = path.suffix == ".html"
    if not is_html:
        parse_json(text)
    try:
        return View(_KEY.validate_python(path.stem), text, is_html)
    except ValidationError as error:
        raise BadDefinition(f"its name: {format_problem(error).partition(': ')[2]}") from error
