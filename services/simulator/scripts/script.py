"""Parses scripts from JSON, and finds the rule for a request."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import orjson
from pydantic import TypeAdapter, ValidationError

from headrace.regular_files import read_regular_file
from services.simulator.scripts.steps import Refusal, Rule

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from services.simulator.requests.model_request import ModelRequest

FILE_BYTES_MAX = 64 * 1024 * 1024

_RULES = TypeAdapter(tuple[Rule, ...])


class BadScript(Exception):
    """The script is invalid; the message names place and reason."""


def read_script(path: Path) -> tuple[Rule, ...]:
    """Read a file's rules.

    Raises:
        BadScript: It is not JSON, or not a script.
    """
    try:
        return parse_script(orjson.loads(read_regular_file(path, FILE_BYTES_MAX)))
    except (OSError, orjson.JSONDecodeError) as error:
        raise BadScript(f"{path}: {error}") from error


def parse_script(data: object) -> tuple[Rule, ...]:
    """Parse the rules of a decoded JSON list.

    Raises:
        BadScript: It is not a script.
    """
    try:
        rules = _RULES.validate_python(data)
    except ValidationError as error:
        first = error.errors()[0]
        raise BadScript(f"{'.'.join(map(str, first['loc']))}: {first['msg']}") from error
    for number, rule in enumerate(rules):
        if len(rule.steps) > 1 and any(isinstance(step, Refusal) for step in rule.steps):
            raise BadScript(f"{number}.steps: a status is the only step of its reply")
    return rules


def find_rule(rules: Sequence[Rule], request: ModelRequest, body: Any) -> Rule | None:
    """Return the first rule that fits, or None."""
    return next((rule for rule in rules if _matches_rule(rule, request, body)), None)


def _matches_rule(rule: Rule, request: ModelRequest, body: Any) -> bool:
    match = rule.match
    return (
        (match.model is None or match.model == request.model)
        and (match.turn is None or match.turn == request.turn)
        and (match.text is None or re.search(match.text, request.text) is not None)
        and (match.field is None or _has_field(body, match.field.split(".")))
    )


def _has_field(body: Any, names: Sequence[str]) -> bool:
    for name in names:
        if not isinstance(body, dict) or name not in body:
            return False
        body = body[name]
    return True
