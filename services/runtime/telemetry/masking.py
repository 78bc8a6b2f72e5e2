"""Masks credentials in provider messages and log lines, even in JSON inside a JSON string."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import structlog

if TYPE_CHECKING:
    from collections.abc import Mapping

MASK = "***"

SECRET_CHARS_MIN = 6
"""Minimum length of secrets; shorter values are placeholders, which occur in harmless words."""

# A refused field of a configuration file, as in "apiKey: unknown, or not supported by this version", has no secret.
# No repetition comes before the telling word: it would take minutes on a mebibyte of text. A value ends with its quote,
# and a value inside another string ends with that string.
_NAMED = re.compile(
    r"""(?P<name>(?:authorization|api[ _-]?key|token|secret|password)"""
    r"""(?:\\*["']\s*,\s*b?(?=["'])|(?:\\*["'])?\s*[:=]\s*))(?!unknown, or not supported)"""
    r"""(?:(?P<double>")(?:\\.|[^"\\])*|(?P<single>')(?:\\.|[^'"\\])*|(?P<inner>\\+["'])[^"'\\]*"""
    r"""|(?:(?:Bearer|Basic)\s+)?[^\s"',;}&\\]+)""",
    re.IGNORECASE,
)
_BARE = re.compile(
    r"\b(?:Bearer\s+[\w.~+/=-]{8,}|sk-[\w*-]{8,}|AIza[\w-]{30,}|eyJ[\w-]{8,}(?:\.[\w-]+)+)", re.IGNORECASE
)

_NAMED_WORDS = ("authorization", "key", "token", "secret", "password")
_BARE_WORDS = ("bearer", "sk-", "aiza", "eyj")
"""Words that must occur, in any case, in a text for the patterns above to match: the patterns take 25 µs for a log line
of 400 characters (Python 3.11), and most lines contain none of these."""

_TELLING = re.compile(r"KEY|TOKEN|SECRET|PASSWORD|CREDENTIAL")


def mask_secrets(text: str, *secrets: str) -> str:
    """Mask `secrets`, fields with telling names, and bare keys."""
    text = mask_values(text, *secrets)
    folded = text.casefold()
    if any(map(folded.__contains__, _NAMED_WORDS)):
        text = _NAMED.sub(rf"\g<name>\g<double>\g<single>\g<inner>{MASK}", text)
    if any(map(folded.__contains__, _BARE_WORDS)):
        text = _BARE.sub(MASK, text)
    return text


def mask_values(text: str, *secrets: str) -> str:
    """Mask `secrets`, but not those too short to be one."""
    for secret in secrets:
        if len(secret) >= SECRET_CHARS_MIN:
            for form in _list_forms(secret):
                text = text.replace(form, MASK)
    return text


def _list_forms(secret: str) -> list[str]:
    """Return the forms of a secret in a text: unchanged, in JSON, and in JSON inside a JSON string; the longest first,
    because it may contain the others."""
    if secret.isascii() and secret.isprintable() and '"' not in secret and "\\" not in secret:
        return [secret]
    forms = [secret]
    for is_ascii in (False, True):
        within = json.dumps(secret, ensure_ascii=is_ascii)[1:-1]
        forms += (within, json.dumps(within, ensure_ascii=is_ascii)[1:-1])
    return sorted(set(forms), key=len, reverse=True)


def find_secrets(env: Mapping[str, str]) -> tuple[str, ...]:
    return tuple(value for name, value in env.items() if _TELLING.search(name) and len(value) >= SECRET_CHARS_MIN)


def mask_log_lines(*secrets: str) -> None:

    def mask(_logger: object, _method: str, line: Any) -> str:
        return mask_secrets(line, *secrets)

    structlog.configure(processors=[*structlog.get_config()["processors"], mask])
