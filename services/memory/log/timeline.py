"""The lines shown after reverts.

Every line knows the one shown before it, so a revert is a step back. Unfinished runs keep their queries, which still
need answers; for the model alone, what people have pinned and edited of what is before stays."""

from __future__ import annotations

from array import array
from itertools import takewhile
from typing import TYPE_CHECKING

from services.memory.log.chat_info import SCOPE_ALL
from services.memory.log.lines import Line, Pin, Query, Revert, Run, Step, SummaryEdit

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
            return  # in no log of ours: a revert is held against its chat before it is committed
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
        """List what people have changed since of what models see before `target`: it is none of what is taken back."""
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
        """List the lines that checkpoints are before, by the checkpoints' ids."""
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
