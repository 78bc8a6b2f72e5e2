"""What differs between what was recorded and what a replay has said."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from services.runtime.telemetry.masking import MASK, mask_secrets

TIMES = frozenset({"timestamp", "expiresAt", "remindAt", "escalateAt", "until", "openedAt"})
"""Members of events that are times, in which a replay may differ."""

BESIDE = TIMES | {"agentVersionHash"}
"""Members of events that are not compared: a changed definition is told by what it changes."""

UNCOMPARED = frozenset({"timeoutMs", "requestId", "timeLeftMs", "traceparent", "commonOnly"})
"""Members of requests that hang on the clock, are new each time, or are not in cassettes of before."""

SHOWN_CHARS = 160


class Difference(Exception):
    """The replay says something else than the cassette; the message names the line, and what differs."""


def differs(recorded: Any, replayed: Any) -> bool:
    """Compare what JSON holds; what is masked in the recording is masked in both."""
    if recorded == replayed:
        return False
    if isinstance(recorded, str) and isinstance(replayed, str):
        return MASK not in recorded or recorded != mask_secrets(replayed)
    if isinstance(recorded, dict) and isinstance(replayed, dict):
        return recorded.keys() != replayed.keys() or any(differs(recorded[name], replayed[name]) for name in recorded)
    if isinstance(recorded, list) and isinstance(replayed, list):
        pairs = zip(recorded, replayed, strict=False)
        return len(recorded) != len(replayed) or any(differs(one, other) for one, other in pairs)
    return True


def drop_members(given: Any, names: frozenset[str]) -> Any:
    if isinstance(given, dict):
        return {name: drop_members(value, names) for name, value in given.items() if name not in names}
    if isinstance(given, list):
        return [drop_members(item, names) for item in given]
    return given


def describe(recorded: Any, replayed: Any) -> str:
    """Say the first place in which two values differ."""
    for path, one, other in _walk("", recorded, replayed):
        mask = " (the recording is masked here)" if isinstance(one, str) and MASK in one else ""
        return f"{path or 'all'}: recorded {_shorten(one)}, replayed {_shorten(other)}{mask}"
    return "nothing differs"


def _walk(path: str, one: Any, other: Any) -> Iterator[tuple[str, Any, Any]]:
    if isinstance(one, dict) and isinstance(other, dict):
        for name in dict.fromkeys((*one, *other)):
            yield from _walk(f"{path}.{name}" if path else name, one.get(name, ABSENT), other.get(name, ABSENT))
    elif isinstance(one, list) and isinstance(other, list):
        for index in range(max(len(one), len(other))):
            left, right = (items[index] if index < len(items) else ABSENT for items in (one, other))
            yield from _walk(f"{path}[{index}]", left, right)
    elif differs(one, other):
        yield path, one, other


class _Absent:
    def __repr__(self) -> str:
        return "nothing"


ABSENT = _Absent()


def _shorten(value: Any) -> str:
    text = repr(value) if isinstance(value, _Absent) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= SHOWN_CHARS else f"{text[:SHOWN_CHARS]}…"
