"""Masks what looks like a credential in text that leaves the gateway: provider messages and debug lines."""

from __future__ import annotations

import re

MASK = "***"

# No repetition before the telling word: on a text of a mebibyte that would take minutes.
_NAMED = re.compile(
    r"""(?P<name>(?:authorization|api[_-]?key|token|secret|password)["']?\s*[:=]\s*)"""
    r"""(?P<quote>["']?)(?:(?:Bearer|Basic)\s+)?[^\s"',;}]+""",
    re.IGNORECASE,
)
_BARE = re.compile(r"\b(?:Bearer\s+[\w.~+/=-]{8,}|sk-[\w*-]{8,})", re.IGNORECASE)


def masked(text: str, *secrets: str) -> str:
    """`text` without `secrets`, without the values of fields with telling names, and without bare keys."""
    for secret in secrets:
        if secret:
            text = text.replace(secret, MASK)
    return _BARE.sub(MASK, _NAMED.sub(rf"\g<name>\g<quote>{MASK}", text))
