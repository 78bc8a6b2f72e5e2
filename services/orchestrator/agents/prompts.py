"""Placeholders in system prompts: only known names, filled in one pass so that inserted text is not scanned."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from importlib.resources import files

from headrace.errors import ContextLengthExceeded, UnknownPlaceholder
from services.runtime.formats.own_tags import neutralise_tag

_PLACEHOLDER = re.compile(r"(\\?)\{\{\s*([\w-]+)\s*\}\}")
"""Names with a dot are tool templates and do not match; a backslash makes the rest text."""

_TEMPLATE_OFFSET = re.compile(r"\{\{\s*[\w-]+\.[\w-]+(?!\+\d{1,6}d\s*\}\})\s*\+[^{}]*\}\}")
"""A template with a malformed day offset. The tools service would refuse it in every call the model makes with it."""

FILLED_CHARS_MAX = 4_000_000

_TEXTS = files("services.orchestrator.agents") / "texts"

ALIASES = {"taskHistory": "task_history", "fileNameDesc": "file_names"}

NAMES = frozenset(
    {"date", "query", "files", "tools", "task_list", "task_id", "task_description", "history_dialogue"}
    | set(ALIASES.values())
)


def check_placeholders(prompt: str) -> None:
    if (template := _TEMPLATE_OFFSET.search(prompt)) is not None:
        raise UnknownPlaceholder(f"{template[0]} is no template: days are added as in {{{{tool.field+3d}}}}")
    for match in _PLACEHOLDER.finditer(prompt):
        if not match[1] and _resolve_name(match) not in NAMES:
            known = f"known ones: {', '.join(sorted(NAMES))}; a backslash before the braces makes them text"
            raise UnknownPlaceholder(f"{match[0]} is no placeholder; {known}", placeholder=match[2])


@cache
def load_text(name: str) -> str:
    return _TEXTS.joinpath(f"{name}.txt").read_text(encoding="utf-8").strip()


def uses_placeholder(prompt: str, name: str) -> bool:
    return any(not match[1] and _resolve_name(match) == name for match in _PLACEHOLDER.finditer(prompt))


def fill_placeholders(prompt: str, values: Mapping[str, str]) -> str:
    """Fill the placeholders. A name without a value becomes empty, and tags of ours in values are neutralised.

    Raises:
        ContextLengthExceeded: The inserted text has more characters than any model's window.
    """
    room = FILLED_CHARS_MAX

    def fill(match: re.Match[str]) -> str:
        nonlocal room
        if match[1]:
            return match[0][1:]
        value = neutralise_tag(values.get(_resolve_name(match), ""), "system_reminder")
        room -= len(value)
        if room < 0:
            raise ContextLengthExceeded(f"placeholders fill a prompt with more than {FILLED_CHARS_MAX} characters")
        return value

    return _PLACEHOLDER.sub(fill, prompt)


def _resolve_name(match: re.Match[str]) -> str:
    return ALIASES.get(match[2], match[2])
