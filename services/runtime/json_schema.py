"""JSON Schemas of tools' arguments."""

from __future__ import annotations

from jsonschema_rs import Draft202012Validator, RegexOptions, ValidationError

PATTERN_BYTES_MAX = 1024 * 1024
"""Size of a compiled pattern, ten times an honest tool's."""

MESSAGE_CHARS_MAX = 400
"""Length of a message, which repeats the value."""


def compile_validator(schema: str) -> Draft202012Validator:
    """Return a validator with patterns in linear time, which fetches nothing; raises ValidationError."""
    options = RegexOptions(size_limit=PATTERN_BYTES_MAX, dfa_size_limit=PATTERN_BYTES_MAX)
    return Draft202012Validator(schema, offline=True, pattern_options=options)


def format_path(error: ValidationError) -> str:
    return "$" + "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in error.instance_path)


def format_violation(error: ValidationError) -> str:
    message = error.message
    if len(message) > MESSAGE_CHARS_MAX:
        # The value stands first, what was expected of it last.
        message = f"{message[: MESSAGE_CHARS_MAX // 2]}…{message[-MESSAGE_CHARS_MAX // 2 :]}"
    return f"{format_path(error)}: {message} (rule: {error.kind.name})"
