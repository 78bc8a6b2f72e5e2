"""Placeholders in system prompts: known names only, filled once, so that inserted text is not scanned."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import cache
from importlib.resources import files

from headrace.errors import UnknownPlaceholder

_PLACEHOLDER = re.compile(r"\{\{\s*([\w-]+)\s*\}\}")
"""Names with a dot are tool templates and do not match."""

_TEXTS = files("services.orchestrator.agents") / "texts"

ALIASES = {"taskHistory": "task_history", "fileNameDesc": "file_names"}

NAMES = frozenset(
    {"date", "query", "files", "tools", "task_list", "task_id", "task_description", "history_dialogue"}
    | set(ALIASES.values())
)


def check_placeholders(prompt: str) -> None:
    for match in _PLACEHOLDER.finditer(prompt):
        if _resolve_name(match) not in NAMES:
            known = ", ".join(sorted(NAMES))
            raise UnknownPlaceholder(f"{match[0]} is no placeholder; known ones: {known}", placeholder=match[1])


@cache
def load_text(name: str) -> str:
    return _TEXTS.joinpath(f"{name}.txt").read_text(encoding="utf-8").strip()


def uses_placeholder(prompt: str, name: str) -> bool:
    return any(_resolve_name(match) == name for match in _PLACEHOLDER.finditer(prompt))


def fill_placeholders(prompt: str, values: Mapping[str, str]) -> str:
    """Fill the placeholders; a name without a value becomes empty."""
    return _PLACEHOLDER.sub(lambda match: values.get(_resolve_name(match), ""), prompt)


def with_time(prompt: str, now: datetime) -> str:
    """Put the time at the end, where it leaves a provider's prefix cache intact."""
    return f"{prompt}\n\nCurrent time: {now.astimezone(UTC):%Y-%m-%d %H:%M} UTC"


def _resolve_name(match: re.Match[str]) -> str:
    return ALIASES.get(match[1], match[1])
