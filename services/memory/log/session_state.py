"""Session state: a JSON object for each context, logged as changes (docs/reference/chat-log.md)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import msgspec

from headrace.errors import InvalidRequest, StaleLease
from headrace.v1 import memory_pb2
from services.memory.log.lines import Line, State
from services.memory.log.raw_json import embed_json

_OBJECT = msgspec.json.Decoder(dict[str, msgspec.Raw])


MAIN = "main"
"""A caller's name for the run's own context, nameless in the log."""


@dataclass(frozen=True, slots=True)
class SessionState:
    values: dict[str, msgspec.Raw] = field(default_factory=dict[str, msgspec.Raw])
    version: int = 0

    @property
    def json(self) -> str:
        return msgspec.json.encode(self.values).decode()

    def apply_line(self, line: State) -> SessionState:
        kept = {key: value for key, value in self.values.items() if key not in line.removed}
        return SessionState(kept | line.changed, line.version)

    def find_changes(self, text: str) -> tuple[dict[str, msgspec.Raw], list[str]]:
        """Return the values to set and the names to remove that turn this state into the JSON object `text`.

        Raises:
            InvalidRequest: `text` is no object.
        """
        try:
            wanted = _OBJECT.decode(bytes(embed_json(text)))
        except (msgspec.DecodeError, RecursionError):
            raise InvalidRequest.of("state", "must be a JSON object") from None
        changed = {key: value for key, value in wanted.items() if self.values.get(key) != value}
        return changed, [key for key in self.values if key not in wanted]


def read_states(lines: Iterable[Line]) -> dict[str, SessionState]:
    states: dict[str, SessionState] = {}
    for line in lines:
        update_states(states, line)
    return states


def update_states(states: dict[str, SessionState], line: Line) -> None:
    if isinstance(line, State):
        key = line.context_id or ""
        states[key] = states.get(key, SessionState()).apply_line(line)


def get_context_key(context_id: str) -> str:
    """Return the log's key of a caller's context; empty for the run's own."""
    return "" if context_id == MAIN else context_id


def make_state_line(stamped: dict[str, Any], before: SessionState, request: memory_pb2.UpdateStateRequest) -> State:
    """Make the line that changes state `before` as `request` asks.

    Raises:
        StaleLease: The request was made from another state.
    """
    if request.expected_version != before.version:
        raise stale_state_error(request.chat_id, before.version)
    changed, removed = before.find_changes(request.state)
    context_id = get_context_key(request.context_id) or None
    return State(**stamped, context_id=context_id, version=before.version + 1, changed=changed, removed=removed)


def stale_state_error(chat_id: str, version: int) -> StaleLease:
    return StaleLease(
        f"the state is at version {version} now; get it and change it again", chatId=chat_id, version=version
    )
