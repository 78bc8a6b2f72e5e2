"""Masks credentials in provider messages and log lines.

It handles headers, plain text, JSON, and JSON in a JSON string, whose quotes have backslashes.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import structlog

if TYPE_CHECKING:
    from collections.abc import Mapping

MASK = "***"

SECRET_CHARS_MIN = 6
"""A shorter value is a placeholder that innocent words would match."""

# No repetition stands before the telling word: it would take minutes on a mebibyte of text. A value ends with its
# quote, and a value inside another string ends with that string.
_NAMED = re.compile(
    r"""(?P<name>(?:authorization|api[ _-]?key|token|secret|password)"""
    r"""(?:\\*["']\s*,\s*b?(?=["'])|(?:\\*["'])?\s*[:=]\s*))"""
    r"""(?:(?P<double>")(?:\\.|[^"\\])*|(?P<single>')(?:\\.|[^'"\\])*|(?P<inner>\\+["'])[^"'\\]*"""
    r"""|(?:(?:Bearer|Basic)\s+)?[^\s"',;}&\\]+)""",
    re.IGNORECASE,
)
_BARE = re.compile(
    r"\b(?:Bearer\s+[\w.~+/=-]{8,}|sk-[\w*-]{8,}|AIza[\w-]{30,}|eyJ[\w-]{8,}(?:\.[\w-]+)+)", re.IGNORECASE
)
"""Bearer tokens, `sk-` and Google keys, JSON web tokens."""

_TELLING = re.compile(r"KEY|TOKEN|SECRET|PASSWORD|CREDENTIAL")


def mask_secrets(text: str, *secrets: str) -> str:
    """Mask `secrets`, fields with telling names, and bare keys."""
    for secret in secrets:
        if secret:
            text = text.replace(secret, MASK)
    return _BARE.sub(MASK, _NAMED.sub(rf"\g<name>\g<double>\g<single>\g<inner>{MASK}", text))


def find_secrets(env: Mapping[str, str]) -> tuple[str, ...]:
    """Return the values of variables with telling names."""
    return tuple(value for name, value in env.items() if _TELLING.search(name) and len(value) >= SECRET_CHARS_MIN)


def mask_log_lines(*secrets: str) -> None:
    """Mask every later log line of this process."""

    def mask(_logger: object, _method: str, line: Any) -> str:
        return mask_secrets(line, *secrets)

    structlog.configure(processors=[*structlog.get_config()["processors"], mask])
