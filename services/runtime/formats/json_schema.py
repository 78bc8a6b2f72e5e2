"""JSON Schemas of tools' arguments and of answers."""

from __future__ import annotations

import json
from functools import lru_cache
from typing import Any

from jsonschema_rs import Draft202012Validator, RegexOptions, ValidationError

from services.runtime.formats.json_depth import JSON_DEPTH_MAX, has_more_values, measure_json_depth

PATTERN_BYTES_MAX = 1024 * 1024
"""Size of a compiled pattern, ten times an honest tool's."""

MESSAGE_CHARS_MAX = 400
"""Length of a message, which repeats the value."""

VIOLATIONS_SHOWN_MAX = 5
"""Enough for a model to correct all at once."""

VALUES_LISTED_MAX = 1000
"""Size of a value of which all violations are looked for: the library makes them all at once, 15 µs and 1.5 kB each."""

SCHEMAS_KEPT = 256
"""Installations have fewer tools."""


@lru_cache(SCHEMAS_KEPT)
def compile_validator(schema: str, mask: str | None = None) -> Draft202012Validator:
    """Return a validator with patterns in linear time, which fetches nothing; raises ValidationError.

    Its messages repeat the value, or have `mask` in its place.
    """
    options = RegexOptions(size_limit=PATTERN_BYTES_MAX, dfa_size_limit=PATTERN_BYTES_MAX)
    return Draft202012Validator(schema, offline=True, pattern_options=options, mask=mask)


def find_schema_problem(schema: str) -> str:
    """Return why a JSON text is no schema; empty when it is one."""
    try:
        compile_validator(schema)
    except ValidationError as error:
        return format_violation(error)
    return ""


def describe_violations(value: Any, *validators: Draft202012Validator) -> str:
    """Return for a model what is wrong with a parsed value; empty when nothing is."""
    if measure_json_depth(value) > JSON_DEPTH_MAX:
        return f"$: nested too deeply, more than {JSON_DEPTH_MAX} levels"
    find = _find_first if has_more_values(value, VALUES_LISTED_MAX) else Draft202012Validator.iter_errors
    violations = [format_violation(error) for validator in validators for error in find(validator, value)]
    return "; ".join([*dict.fromkeys(violations)][:VIOLATIONS_SHOWN_MAX])


def _find_first(validator: Draft202012Validator, value: Any) -> list[ValidationError]:
    try:
        validator.validate(value)
    except ValidationError as error:
        return [error]
    return []


def load_json(text: str) -> Any:
    """Parse JSON, integers of any size whole.

    Raises:
        UnicodeEncodeError: It spells half a surrogate pair, which is no character and cannot be stored or sent.
        ValueError: It is no JSON; NaN and the infinities, which json.loads takes, are none.
        RecursionError: It is nested too deeply.
    """
    value = json.loads(text, parse_constant=_refuse_constant)
    json.dumps(value, ensure_ascii=False).encode()
    return value


def _refuse_constant(name: str) -> float:
    raise ValueError(f"{name} is not JSON")


def format_path(error: ValidationError) -> str:
    return "$" + "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in error.instance_path)


def format_violation(error: ValidationError) -> str:
    message = error.message
    if len(message) > MESSAGE_CHARS_MAX:
        # The value stands first, what was expected of it last.
        message = f"{message[: MESSAGE_CHARS_MAX // 2]}…{message[-MESSAGE_CHARS_MAX // 2 :]}"
    return f"{format_path(error)}: {message} (rule: {error.kind.name})"
