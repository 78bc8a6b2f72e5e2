"""The session state of a chat, as AG-UI's state: whole at first, then what has changed."""

from __future__ import annotations

from typing import Any


class StateView:
    """What a reader has of the state."""

    def __init__(self) -> None:
        self._shown: dict[str, Any] | None = None

    def describe_change(self, state: dict[str, Any]) -> tuple[str, dict[str, Any]] | None:
        """Return the kind and the fields of the event that brings the reader to `state`; None when it is there."""
        before, self._shown = self._shown, state
        if before is None:
            return ("STATE_SNAPSHOT", {"snapshot": state}) if state else None
        patch: list[dict[str, Any]] = [
            {"op": "remove", "path": _point_to(name)} for name in before.keys() - state.keys()
        ]
        patch += [
            {"op": "add", "path": _point_to(name), "value": value}
            for name, value in state.items()
            if name not in before or before[name] != value
        ]
        return ("STATE_DELTA", {"delta": patch}) if patch else None


def _point_to(name: str) -> str:
    """Return the JSON Pointer of a member (RFC 6901); `add` replaces one that is there."""
    return "/" + name.replace("~", "~0").replace("/", "~1")
