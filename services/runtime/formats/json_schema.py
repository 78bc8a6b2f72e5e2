"""JSON Schemas of tools' arguments and of answers."""

from __future__ import annotations

import json
from functools import lru_cache
from typing import Any

from jsonschema_rs import (
    Draft4Validator,
    Draft7Validator,
    Draft202012Validator,
    RegexOptions,
    ValidationError,
    Validator,
    validator_cls_for,
)

from services.runtime.formats.json_depth import JSON_DEPTH_MAX, has_more_values, measure_json_depth
from services.runtime.formats.schema_parts import leave_out_part, leave_out_references

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


OLDER_FORMS: dict[str, type[Validator]] = {
    "items": Draft7Validator,
    "exclusiveMinimum": Draft4Validator,
    "exclusiveMaximum": Draft4Validator,
}
"""Keywords that have another form in an older draft, which schemas without `$schema` have, too."""

PARTS_LEFT_OUT_MAX = 100
"""Parts of a schema that are left out one by one; what has more is not checked at all."""


def compile_validator(schema: str, mask: str | None = None) -> Validator:
    """Return a validator of a JSON Schema of any draft, which fetches nothing and whose patterns run in linear time.

    What it cannot apply it does not check, and it refuses nothing for that: a pattern that has no linear form, as a
    look-ahead, a reference to nowhere, a keyword of a wrong form. Its messages repeat the value, or have `mask` in its
    place.

    Raises:
        ValueError: The text is no JSON, or nested too deeply.
    """
    return _compile(schema, mask)[0]


def find_schema_problem(schema: str) -> str:
    """Return why a JSON text is a schema in no draft; empty when it is one, even if its patterns cannot be run here."""
    try:
        return _compile(schema, None)[1]
    except ValueError as error:
        return f"$: {error}"


@lru_cache(SCHEMAS_KEPT)
def _compile(schema: str, mask: str | None) -> tuple[Validator, str]:
    parsed = json.loads(schema)
    if measure_json_depth(parsed) > JSON_DEPTH_MAX:
        raise ValueError(f"nested too deeply, more than {JSON_DEPTH_MAX} levels")
    if not isinstance(parsed, dict):
        problem = "" if isinstance(parsed, bool) else "$: an object or a boolean is expected"
        return Draft202012Validator(parsed is not False), problem
    draft = validator_cls_for(parsed)
    try:
        try:
            return _compile_parts(draft, json.loads(schema), mask, needs_form=True), ""
        except ValidationError as error:
            if not error.instance_path or error.instance_path[-1] not in OLDER_FORMS or "$schema" in parsed:
                raise
            older = OLDER_FORMS[str(error.instance_path[-1])]
            return _compile_parts(older, json.loads(schema), mask, needs_form=True), ""
    except ValidationError as error:
        return _compile_parts(draft, parsed, mask, needs_form=False), format_violation(error)


def _compile_parts(draft: type[Validator], parsed: dict[str, Any], mask: str | None, needs_form: bool) -> Validator:
    """Compile a schema without what cannot be applied: patterns and, unless it needs its form, all else."""
    options = RegexOptions(size_limit=PATTERN_BYTES_MAX, dfa_size_limit=PATTERN_BYTES_MAX)
    for _ in range(PARTS_LEFT_OUT_MAX):
        try:
            return draft(json.dumps(parsed), offline=True, pattern_options=options, mask=mask)
        except ValidationError as error:
            if needs_form and error.kind.as_dict().get("format") != "regex":
                raise
            if error.instance_path:
                leave_out_part(parsed, error.instance_path)
            else:
                leave_out_references(parsed)
    return draft(True)


def describe_violations(value: Any, *validators: Validator) -> str:
    """Return for a model what is wrong with a parsed value; empty when nothing is."""
    if measure_json_depth(value) > JSON_DEPTH_MAX:
        return f"$: nested too deeply, more than {JSON_DEPTH_MAX} levels"
    is_large = has_more_values(value, VALUES_LISTED_MAX)
    errors = (
        error for one in validators for error in (_find_first(one, value) if is_large else one.iter_errors(value))
    )
    violations = [format_violation(error) for error in errors]
    return "; ".join([*dict.fromkeys(violations)][:VIOLATIONS_SHOWN_MAX])


def _find_first(validator: Validator, value: Any) -> list[ValidationError]:
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
