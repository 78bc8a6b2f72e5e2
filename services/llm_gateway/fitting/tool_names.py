"""Names of tools as every provider takes them: letters, digits, `_` and `-`, at most 64.

OpenAI: https://platform.openai.com/docs/api-reference/chat/create; Anthropic takes 128 of the same characters; Gemini
wants a letter or `_` first (https://ai.google.dev/api/caching#FunctionDeclaration, 2026-11).
"""

from __future__ import annotations

import hashlib
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

LENGTH_MAX = 64

_UNFIT = re.compile(r"[^A-Za-z0-9_-]")
_BEGIN = re.compile(r"[A-Za-z_]")
_HASH_LENGTH = 8


class ToolNames:
    """Maps the names of tools, offered now or called before, to those in a request."""

    def __init__(self, offered: Iterable[str]) -> None:
        self._fitted: dict[str, str] = {}
        taken: set[str] = set()
        # A name that fits stays as it is, whichever tool is offered first.
        for name in sorted(offered, key=lambda name: fit_name(name) != name):
            fitted = fit_name(name)
            self._fitted[name] = fitted = fitted if fitted not in taken else _add_hash(fitted, name)
            taken.add(fitted)

    def fit(self, name: str) -> str:
        return self._fitted.get(name) or fit_name(name)

    def list_replaced(self) -> Mapping[str, str]:
        """Return the tools' own names by those in the request, where they differ."""
        return {fitted: name for name, fitted in self._fitted.items() if fitted != name}


def fit_name(name: str) -> str:
    fitted = _UNFIT.sub("_", name)
    fitted = fitted if _BEGIN.match(fitted) else f"_{fitted}"
    return fitted if len(fitted) <= LENGTH_MAX else _add_hash(fitted, name)


def _add_hash(fitted: str, name: str) -> str:
    digits = hashlib.sha256(name.encode()).hexdigest()[:_HASH_LENGTH]
    return f"{fitted[: LENGTH_MAX - _HASH_LENGTH - 1]}_{digits}"
