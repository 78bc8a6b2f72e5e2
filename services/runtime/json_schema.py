"""JSON Schemas of tools' arguments, with patterns in linear time and violations told to a model."""

from __future__ import annotations

from jsonschema_rs import Draft202012Validator, RegexOptions, ValidationError

PATTERN_BYTES_MAX = 1024 * 1024
"""Size of a compiled pattern; an honest tool's needs a tenth."""

MESSAGE_CHARS_MAX = 400
"""Length of a violation's message, which repeats the value."""


def compile_validator(schema: str) -> Draft202012Validator:
    """Return a schema's validator; patterns are linear and bounded, references are not fetched.

    Raises:
        ValidationError: It is no JSON Schema.
    """
    options = RegexOptions(size_limit=PATTERN_BYTES_MAX, dfa_size_limit=PATTERN_BYTES_MAX)
    return Draft202012Validator(schema, offline=True, pattern_options=options)


def format_path(error: ValidationError) -> str:
    return "$" + "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in error.instance_path)


def format_violation(error: ValidationError) -> str:
    """Return a violation's path, rule and message, of bounded length."""
    message = error.message
    if len(message) > MESSAGE_CHARS_MAX:
        # The value stands first, what was expected of it last.
        message = f"{message[: MESSAGE_CHARS_MAX // 2]}…{message[-MESSAGE_CHARS_MAX // 2 :]}"
    return f"{format_path(error)}: {message} (rule: {error.kind.name})"
