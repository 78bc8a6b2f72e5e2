"""Reads configuration files into models, and reports those that are refused.

Without a report, the last good version, which stays in force, would hide the mistake until a restart.
"""

from __future__ import annotations

import json
from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, TypeVar

import orjson
import structlog
from prometheus_client import Gauge

from headrace.yaml_loading import load_yaml
from services.runtime.formats.json_form import JSON_DEPTH_MAX, measure_json_depth

if TYPE_CHECKING:
    from pydantic import BaseModel, ValidationError


REFUSED_FILES = Gauge(
    "headrace_refused_files", "Configuration files that are refused now; what was good last stays in force.", ("kind",)
)

M = TypeVar("M", bound="BaseModel")

NAME_CHARS_MAX = 100
"""How much of an unknown field's name is compared with the known ones."""

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Refusal:
    """A file, or an entry of one, refused by its reader."""

    file: str
    """The file's name as its reader reports it: a path, or a name within its folder."""

    problem: str
    """Problems with field and rule, one per line."""


_refusals: ContextVar[list[Refusal] | None] = ContextVar("refusals", default=None)


@contextmanager
def collecting_refusals() -> Generator[list[Refusal]]:
    """Collect the refusals of readers inside the block, in this task or thread."""
    refusals: list[Refusal] = []
    token = _refusals.set(refusals)
    try:
        yield refusals
    finally:
        _refusals.reset(token)


def report_refusal(event: str, *, file: str, problem: str, **facts: object) -> None:
    """Log `event` for a refused file, with further facts."""
    log.error(event, file=file, problem=problem, **facts)
    if (refusals := _refusals.get()) is not None:
        refusals.append(Refusal(file, problem))


def load_yaml_model(data: bytes, model: type[M]) -> M:
    """Return the model; an empty file counts as one without fields. Raises ValueError with one `field: rule` line per
    problem."""
    from pydantic import ValidationError  # slow to import, and loaded already if there is a model

    try:
        content = load_yaml(data)
        return model.model_validate({} if content is None else content)
    except ValidationError as error:
        raise ValueError("\n".join(describe_problems(error, model, "file"))) from error


def load_config_json(text: str) -> Any:
    """Return the value of a configuration file's JSON.

    Raises ValueError for text that is not JSON, for what is nested deeper than JSON_DEPTH_MAX, and for a repeated name
    of an object: a parser would silently drop its first value.
    """
    try:
        value = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise ValueError(f"line {error.lineno}, column {error.colno}: not valid JSON: {error.msg}") from None
    if measure_json_depth(value) > JSON_DEPTH_MAX:
        raise ValueError(f"nested deeper than {JSON_DEPTH_MAX} levels")
    # Only json finds repeated names, and keeps large integers; it also takes NaN and half a surrogate pair.
    return json.loads(text, object_pairs_hook=_take_unique)


def _take_unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    named = dict(pairs)
    if len(named) < len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"{next(name for name in names if names.count(name) > 1)!r} is there twice in one object")
    return named


def describe_problems(error: ValidationError, model: type[BaseModel], whole: str = "") -> list[str]:
    """Return each refused field of a `model` with the rule that it violates; `whole` is the name for all of it."""
    lines: list[str] = []
    for problem in error.errors(include_input=False):
        field, rule = ".".join(map(str, problem["loc"])) or whole, describe_rule(problem, model)
        lines.append(f"{field}: {rule}" if field else rule)
    return lines


def describe_rule(problem: Any, model: type[BaseModel]) -> str:
    """Return the rule that one of pydantic's errors about `model` describes; for an unknown field, with the closest
    known name."""
    if problem["type"] != "extra_forbidden":
        return problem["msg"].removeprefix("Value error, ")
    *path, name = problem["loc"]
    close = get_close_matches(str(name)[:NAME_CHARS_MAX], _list_fields(model.model_json_schema(), path), n=1)
    return f"unknown, or not supported by this version{f'; did you mean {close[0]!r}?' if close else ''}"


def _list_fields(schema: dict[str, Any], path: list[str | int]) -> list[str]:
    """Return the fields of the objects that a JSON Schema allows at `path`; names of alternatives in it are skipped."""
    found = _expand(schema, schema)
    for part in path:
        below = [node["items"] for node in found if "items" in node] if isinstance(part, int) else []
        below += [node["properties"][part] for node in found if part in node.get("properties", ())]
        if not below:
            below = [
                node["additionalProperties"] for node in found if isinstance(node.get("additionalProperties"), dict)
            ]
        found = [each for node in below for each in _expand(node, schema)] or found
    return [name for node in found for name in node.get("properties", ())]


def _expand(node: dict[str, Any], schema: dict[str, Any]) -> list[dict[str, Any]]:
    """Return a schema's node with references followed, as the list of its alternatives."""
    if "$ref" in node:
        return _expand(schema["$defs"][node["$ref"].rpartition("/")[2]], schema)
    parts = [part for key in ("anyOf", "oneOf", "allOf") for part in node.get(key, ())]
    return [each for part in parts for each in _expand(part, schema)] or [node]
