"""The state of a chat after reverts: its lines for people and for a model, and its session state.

Every line knows the one shown before it, so a revert is a step back. Unfinished runs keep their queries, which still
need answers; pins and edits of earlier lines stay for the model. Session state is a JSON object for each context,
logged as changes (docs/reference/chat-log.md).
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import takewhile
from typing import TYPE_CHECKING, Any

import msgspec

from headrace.errors import InvalidRequest, StaleLease
from headrace.v1 import memory_pb2
from services.memory.log.chat_info import SCOPE_ALL
from services.memory.log.lines import Line, Pin, Query, Revert, Run, State, Step, SummaryEdit
from services.memory.log.raw_json import embed_json

if TYPE_CHECKING:
    from collections.abc import Iterator

_NOTHING = -1


class Timeline:
    """Two chains of log lines, for people and for a model."""

    def __init__(self) -> None:
        self._nodes: list[Line] = []
        # Of each node, the one before it in either chain.
        self._before_shown, self._before_told = array("q"), array("q")
        self._last_shown = self._last_told = _NOTHING
        self._open: dict[str, int] = {}

    def add_line(self, line: Line) -> None:
        if isinstance(line, Revert):
            self._revert_to(line)
            return
        node = self._add_node(line)
        self._last_shown = self._last_told = node
        if isinstance(line, Query):
            self._open[line.run_id] = node
        elif isinstance(line, Run):
            self._open.pop(line.run_id, None)

    def list_visible(self) -> list[Line]:
        return self._list_chain(self._last_shown, self._before_shown)

    def list_for_model(self) -> list[Line]:
        return self._list_chain(self._last_told, self._before_told)

    def _revert_to(self, line: Revert) -> None:
        target = self._find_checkpoint(line.to_checkpoint_id)
        if target is None:
            return  # never in our own logs: a revert is checked against its chat before it is committed
        kept = {run_id: node for run_id, node in self._open.items() if node >= target}
        edits = [] if line.scope == SCOPE_ALL else self._list_edits_since(target)
        self._last_told = self._before_told[target]
        if line.scope == SCOPE_ALL:
            self._last_shown = self._before_shown[target]
        for edit in edits:
            self._last_told = self._add_node(edit)
        for run_id, query in kept.items():
            node = self._add_node(self._nodes[query])
            self._last_told = node
            if line.scope == SCOPE_ALL:
                self._last_shown = self._open[run_id] = node

    def _list_edits_since(self, target: int) -> list[Line]:
        """List later pins and edits of content before `target` in the model's view, which a revert keeps."""
        limit_n = self._nodes[target].n
        since = takewhile(lambda node: node > target, self._walk_back(self._last_told, self._before_told))
        lines = [self._nodes[node] for node in since][::-1]
        return [
            line for line in lines if isinstance(line, SummaryEdit) or (isinstance(line, Pin) and line.target < limit_n)
        ]

    def _add_node(self, line: Line) -> int:
        self._nodes.append(line)
        self._before_shown.append(self._last_shown)
        self._before_told.append(self._last_told)
        return len(self._nodes) - 1

    def list_checkpoints(self) -> list[Query | Step]:
        """List the lines that follow a checkpoint, by the checkpoints' ids."""
        return [line for line in self.list_visible() if isinstance(line, Query | Step)]

    def _find_checkpoint(self, wanted: int) -> int | None:
        nodes = (
            node
            for node in self._walk_back(self._last_shown, self._before_shown)
            if isinstance(self._nodes[node], Query | Step)
        )
        checkpoints = list(nodes)[::-1]
        return checkpoints[wanted] if 0 <= wanted < len(checkpoints) else None

    def _list_chain(self, last: int, before: array[int]) -> list[Line]:
        return [self._nodes[node] for node in self._walk_back(last, before)][::-1]

    def _walk_back(self, node: int, before: array[int]) -> Iterator[int]:
        while node != _NOTHING:
            yield node
            node = before[node]


_OBJECT = msgspec.json.Decoder(dict[str, msgspec.Raw])

MAIN = "main"
"""A caller's name for the run's own context, which has no name in the log."""


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
            InvalidRequest: `text` is not an object.
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
    """Create the line that changes state `before` as `request` demands.

    Raises:
        StaleLease: The request was based on another state.
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
