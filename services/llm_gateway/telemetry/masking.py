"""Masks credentials in provider messages and log lines, even in JSON inside a JSON string."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import structlog

if TYPE_CHECKING:
    from collections.abc import Mapping

MASK = "***"

SECRET_CHARS_MIN = 6
"""Shorter values are placeholders, found in harmless words."""

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

_TELLING = re.compile(r"KEY|TOKEN|SECRET|PASSWORD|CREDENTIAL")


def mask_secrets(text: str, *secrets: str) -> str:
    """Mask `secrets`, fields with telling names, and bare keys."""
    for secret in secrets:
        if secret:
            text = text.replace(secret, MASK)
    return _BARE.sub(MASK, _NAMED.sub(rf"\g<name>\g<double>\g<single>\g<inner>{MASK}", text))


def find_secrets(env: Mapping[str, str]) -> tuple[str, ...]:
    return tuple(value for name, value in env.items() if _TELLING.search(name) and len(value) >= SECRET_CHARS_MIN)


def mask_log_lines(*secrets: str) -> None:

    def mask(_logger: object, _method: str, line: Any) -> str:
        return mask_secrets(line, *secrets)

    structlog.configure(processors=[*structlog.get_config()["processors"], mask])
